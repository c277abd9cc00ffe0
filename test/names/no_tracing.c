// SPDX-License-Identifier: BSD-3-Clause
/*
 * A kernel, or a security module, that refuses tracing programs: preloaded into
 * netmeter-loader, as none of the kernels at hand does so by itself.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdarg.h>
#include <sys/syscall.h>

long syscall(long number, ...) {
  static long (*real)(long, ...);
  const union bpf_attr* attr;
  va_list list;
  long a[6];

  va_start(list, number);
  for (int i = 0; i < 6; i++) a[i] = va_arg(list, long);
  va_end(list);
  attr = (const union bpf_attr*)a[1];
  if (number == SYS_bpf && a[0] == BPF_PROG_LOAD &&
      attr->prog_type == BPF_PROG_TYPE_TRACING) {
    errno = EPERM;
    return -1;
  }
  if (!real) real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
  return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
