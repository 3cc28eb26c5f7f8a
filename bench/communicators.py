#!/usr/bin/env python3
"""Times collectives of the communicators of this machine, by size: shm between processes that flhost launch starts and
between threads of one, mpi between those of mpirun, with collectives made of messages, and with MPI's own. `make bench-communicators` runs it.

Prints a table, and writes it with the report and a drawing to RESULTS/DATE-communicators-CPU.txt, .json and .svg. What is
not there is skipped, and why is said. Figures of a busy machine are of no use: the report has its load.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys

# Beside what the caller has set: mpirun as root, without ssh, with more ranks than processors.
SURROUNDINGS = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_plm": "isolated"}
# Each rank on a processor of its own, as mpirun binds them: two that share one wait for it at each message.
BIND = ("import os, sys; cpus = sorted(os.sched_getaffinity(0)); "
        "os.sched_setaffinity(0, {cpus[int(os.environ['FLHOST_RANK'])]}); os.execv(sys.argv[1], sys.argv[1:])")
RUNS = [  # what it is called, the communicator, who starts its ranks, settings
    ("shm", "shm", "launch", {}),
    ("shm, threads", "shm", "threads", {}),
    ("mpi, of messages", "mpi", "mpirun", {}),
    ("mpi, MPI's own", "mpi", "mpirun", {"VLLM_FL_COMM_TIMEOUT_S": "0"}),
]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flhost", default="build/flhost", help="the command")
    parser.add_argument("--plot", default="build/bench/plot", help="what draws")
    parser.add_argument("--results", default="bench/results", help="directory of the result files")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("options", nargs="*", metavar="OPTION", help="of flhost bench; after --")
    return parser.parse_args()


def lack(flhost, communicator, launcher):
    """Why there is nothing to measure; None: there is."""
    if launcher == "mpirun" and not shutil.which("mpirun"):
        return "no mpirun"
    done = subprocess.run([flhost, "platform", "--json"], stdout=subprocess.PIPE, text=True, check=True)
    names = {c["name"] for c in json.loads(done.stdout)["communicators"]}
    return None if communicator in names else "no plugin brings it"


def start(asked, launcher):
    """The command, and who starts it."""
    fits = asked.ranks <= len(os.sched_getaffinity(0))
    if launcher == "threads":
        return [asked.flhost, "bench", "--ranks", str(asked.ranks), "--in-process"]
    return [*starter(asked, launcher, fits), asked.flhost, "bench"]


def starter(asked, launcher, fits):
    if launcher == "launch":
        return [asked.flhost, "launch", "-n", str(asked.ranks), "--", *([sys.executable, "-c", BIND] if fits else [])]
    return ["mpirun", "-n", str(asked.ranks), *(["--bind-to", "core"] if fits else ["--oversubscribe"])]


def time_one(asked, communicator, launcher, settings):
    environment = {**SURROUNDINGS, **os.environ, "VLLM_FL_COMMUNICATOR": communicator, **settings}
    command = [*start(asked, launcher), "--json", *asked.options, "communicator"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, env=environment)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)


def time_all(asked):
    runs = []
    for name, communicator, launcher, settings in RUNS:
        reason = lack(asked.flhost, communicator, launcher)
        if reason:
            print(f"skip: {name}: {reason}")
        else:
            runs.append({"name": name, **time_one(asked, communicator, launcher, settings)})
    return runs


def table(runs):
    """Of each collective and size a line, with what each run has."""
    cells = {}
    for i, run in enumerate(runs):
        for row in run["rows"]:
            cells.setdefault((row["collective"], row["bytes"]), {})[i] = row
    columns, titles = "{:15} {:>9}" + " | {:>11} {:>8}" * len(runs), "{:25}" + " | {:^20}" * len(runs)
    lines = [f"{run['name']}: {run['ranks']} ranks, {run['device']}, {run['dtype']}, load {run['machine']['load']:.1f}"
             for run in runs]
    lines += ["", titles.format("", *[run["name"] for run in runs]).rstrip(),
              columns.format("COLLECTIVE", "BYTES", *["US", "BUS GB/S"] * len(runs))]
    for (collective, size), of_runs in cells.items():
        texts = []
        for i in range(len(runs)):
            row = of_runs.get(i, {})
            bus = row.get("bus_bytes_per_s")
            texts += [f"{row['seconds'] * 1e6:.2f}" if row else "", "" if bus is None else f"{bus / 1e9:.3f}"]
        lines.append(columns.format(collective, size, *texts).rstrip())
    return "\n".join(lines) + "\n"


def write(asked, runs):
    machine = runs[0]["machine"]
    name = re.sub(r"[^a-z0-9]+", "-", machine["cpu"].lower()).strip("-")
    path = os.path.join(asked.results, f"{machine['date'][:10]}-communicators-{name}")
    os.makedirs(asked.results, exist_ok=True)
    with open(path + ".txt", "w", encoding="utf-8") as file:
        file.write(table(runs))
    with open(path + ".json", "w", encoding="utf-8") as file:
        json.dump({"machine": machine, "runs": runs}, file, indent=1)
        file.write("\n")
    subprocess.run([asked.plot, path + ".json", path + ".svg"], check=True)
    return path


def main():
    asked = parse()
    runs = time_all(asked)
    if runs:
        print(table(runs), end="")
        print(f"written: {write(asked, runs)}.txt, .json, .svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
