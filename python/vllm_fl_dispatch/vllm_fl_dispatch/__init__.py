"""vllm_fl.dispatch over flhost: see finder.py for how its import path is served, dispatch/ for what it is."""
