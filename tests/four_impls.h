/* The four implementations of the peer's cases, of an op "op() -> str", under a test's control. */
#ifndef FLHOST_TESTS_FOUR_IMPLS_H
#define FLHOST_TESTS_FOUR_IMPLS_H

#include "fixture.h"

static test_impl flagos, cuda, ascend, reference;

static inline fl_host *host_with_four(const char *const *environment) {
  fl_host *host = test_host(environment, 0);
  flagos = (test_impl){.id = "default.flagos"};
  cuda = (test_impl){.id = "vendor.cuda"};
  ascend = (test_impl){.id = "vendor.ascend"};
  reference = (test_impl){.id = "reference.torch"};
  test_op(host, "op");
  test_register(host, "op", &flagos, 0, false);
  test_register(host, "op", &cuda, 0, false);
  test_register(host, "op", &ascend, 0, false);
  test_register(host, "op", &reference, 0, false);
  return host;
}

static inline const char *called(fl_host *host) {
  const char *ran;
  ck_ok(test_call(host, "op", &ran));
  return ran;
}

static inline void set_policy(fl_host *host, fl_policy_fields fields) {
  fl_policy *policy;
  fields.size = sizeof fields;
  ck_ok(fl_policy_create(&fields, &policy));
  ck_ok(fl_set_global_policy(host, policy));
  fl_policy_release(policy);
}

#endif
