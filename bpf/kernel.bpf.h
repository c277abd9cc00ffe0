/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * The kernel's types, as far as they are in use: CO-RE finds the offsets at
 * load, so the object does not depend on the kernel of the build machine.
 */
#ifndef NETMETER_BPF_KERNEL_BPF_H_
#define NETMETER_BPF_KERNEL_BPF_H_

#define __kernel_type __attribute__((preserve_access_index))

typedef struct {
  int counter;
} atomic_t;

struct signal_struct {
  atomic_t live;
} __kernel_type;

struct mm_struct {
  unsigned long arg_start;
  unsigned long arg_end;
} __kernel_type;

struct task_struct {
  struct mm_struct *mm;
  int tgid;
  struct task_struct *group_leader;
  struct signal_struct *signal;
  unsigned long long start_boottime;
  unsigned long long self_exec_id; /* one more at each exec */
  char comm[16];
} __kernel_type;

struct linux_binprm {
  unsigned long exec; /* where the path stands on the new stack */
} __kernel_type;

#endif /* NETMETER_BPF_KERNEL_BPF_H_ */
