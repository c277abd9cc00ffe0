/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0 */
/*
 * The service of a process. The programs find it at exec, because the command line can be
 * read then and is still true. nm_processes keeps it by tgid, so even a process of one
 * millisecond has a name.
 *
 *   exec   the name of the executable; or its parent's name, if the executable is in a
 *          directory `methods`; or a service, if the configuration lists the executable,
 *          or the command line of a Python interpreter tells one; or the unit or
 *          container in which it runs (cgroup_name.bpf.h); or its user id
 *   fork   the child gets its parent's name
 *   exit   the entry goes with the last thread
 *
 * A name gets its id when the process first makes a socket, not before: most processes
 * never make one, and must not fill the table of names. A process that registers gets the
 * id of its name at once (register_process() in control.bpf.h), so registering fails if
 * the table is full.
 *
 * If nm_processes was full, a process has no entry. It is then named when it makes a
 * socket: as the process that it was forked from, or by its executable file. It can
 * choose neither of these. Its command line is not read.
 *
 * If tracing programs cannot load, no program sees exec, fork and exit. A process is then
 * named by its main thread, too. Registering puts a stamp into the entry. The stamp tells
 * whether the process with this tgid is the one that registered, and has not executed
 * another program since.
 *
 * Tracing links cannot be replaced, so an upgrade lets two programs run on one event for
 * a moment. Each handler here must tolerate being run twice.
 */
#ifndef NETMETER_BPF_PROCESS_BPF_H_
#define NETMETER_BPF_PROCESS_BPF_H_

#include "bpf/cgroup_name.bpf.h"
#include "bpf/command_line.bpf.h"
#include "bpf/names.bpf.h"

static __always_inline __u32 current_tgid(void) {
  if (nm_config.tgid_helper) return bpf_get_current_pid_tgid() >> 32;
  return BPF_CORE_READ((struct task_struct *)bpf_get_current_task(), tgid);
}

/* When the current process started, and how often it has executed a program. */
static __always_inline __u64 process_start_ns(__u32 *execs) {
  if (nm_config.task_btf) {
    struct task_struct *task = (void *)bpf_get_current_task_btf();
    struct task_struct *leader = task->group_leader;

    *execs = leader->self_exec_id;
    return leader->start_boottime;
  } else {
    struct task_struct *task = (void *)bpf_get_current_task();
    struct task_struct *leader = BPF_CORE_READ(task, group_leader);

    *execs = BPF_CORE_READ(leader, self_exec_id);
    return BPF_CORE_READ(leader, start_boottime);
  }
}

/* Distinguishes the current process, and what it executes, from earlier and later ones
 * with its process id. */
static __always_inline __u32 process_stamp(void) {
  __u32 execs;
  __u64 start = process_start_ns(&execs);

  return (__u32)start + execs * 0x9e3779b1;
}

/* Whether the id of a process still belongs to its name. It may be another name's by now,
 * if no program noted that this process existed (evict.bpf.h). */
static __always_inline bool has_its_name(const struct nm_process *process) {
  const __u32 *expected = (const __u32 *)process->bytes;
  __u32 id = process->name, differs;
  struct nm_name *name;

  if (!id) return false;
  name = name_of_id(id);
  if (!name || !name->length) return false;
  differs = name->kind ^ process->kind;
  for (__u32 i = 0; i < NM_NAME_BYTES / sizeof(*expected); i++)
    differs |= ((const __u32 *)name->bytes)[i] ^ expected[i];
  return !differs;
}

/* Gives a process the id of its name. It becomes 0 if there is no room for the name, and
 * the next socket tries again. */
static __always_inline void name_process(struct nm_process *process) {
  struct nm_name_key key = {};
  __u32 id;

  if (!is_swept() && has_its_name(process)) return;
  key.kind = process->kind;
  __builtin_memcpy(key.bytes, process->bytes, NM_NAME_BYTES);
  key.length = text_length(key.bytes);
  id = name_id_for_user(&key, current_user());
  process->name = id;
}

/* Names a process by its executable, or by the service of the executable. */
static __always_inline void classify(struct nm_process *process) {
  char(*service)[NM_NAME_BYTES] = NULL;

  process->kind = NM_KIND_BINARY;
  if (nm_config.ranks[NM_SOURCE_SERVICE_LIST])
    service = bpf_map_lookup_elem(&nm_binaries, process->bytes);
  if (!service || !may_be_service(*service)) return;
  process->kind = NM_KIND_SERVICE;
  __builtin_memcpy(process->bytes, *service, NM_NAME_BYTES);
}

/* Names a process by its main thread, because no exec or fork of it was seen. */
static __always_inline void process_by_comm(struct nm_process *process) {
  if (nm_config.task_btf) {
    struct task_struct *task = (void *)bpf_get_current_task_btf();
    struct task_struct *leader = task->group_leader;

    for (int i = 0; i < 16; i++) process->bytes[i] = leader->comm[i];
  } else {
    struct task_struct *task = (void *)bpf_get_current_task();
    struct task_struct *leader = BPF_CORE_READ(task, group_leader);

    if (leader)
      bpf_probe_read_kernel(process->bytes, 16,
                            __builtin_preserve_access_index(&leader->comm));
  }
  process->bytes[15] = 0;
}

/* --- exec ---------------------------------------------------------------- */

/* Whether a path is that of a descriptor, such as /proc/self/fd/3. When execveat(2)
 * executes a descriptor with AT_EMPTY_PATH, the kernel makes the path /dev/fd/3. */
NM_GLOBAL int nm_is_descriptor(__u64 path, long length) {
  __u8 text[16] = {}; /* "/fd/", and ten digits at most */
  __u32 in_number = 0;

  if (length >= (long)sizeof(text)) path += length - (sizeof(text) - 1);
  if (nm_read_string(text, sizeof(text), path) <= 0) return 0;
  for (int i = 3; i < 15; i++) {
    __u32 other = (text[i - 3] ^ '/') | (text[i - 2] ^ 'f') |
                  (text[i - 1] ^ 'd') | (text[i] ^ '/');
    __u32 byte = text[i];

    barrier_var(other);
    barrier_var(byte);
    in_number &= -nm_is_digit(byte) | ~nm_mask_of_byte(byte);
    in_number |= ~nm_mask_of_byte(other);
  }
  return in_number & 1;
}

/* Whether a path begins with /proc/. */
NM_GLOBAL int nm_is_in_proc(__u64 path) {
  __u8 text[8] = {};

  return nm_read_string(text, 7, path) == 7 && text[0] == '/' &&
         text[1] == 'p' && text[2] == 'r' && text[3] == 'o' && text[4] == 'c' &&
         text[5] == '/';
}

/* The full name that comm cuts off, followed by zeros: the base name of the path, which
 * the kernel has just written to the new stack; or the name of the file, if the path is
 * that of a descriptor or is /proc/PID/exe (`is_exe`). For a script that is the name of
 * its interpreter. */
static __always_inline bool read_name_of_exec(struct linux_binprm *bprm,
                                              __u64 path, long length,
                                              bool is_exe, __u8 *name) {
  __u64 of_file = 0;

  if (is_exe ? !nm_is_in_proc(path) : !nm_is_descriptor(path, length))
    return nm_read_found(nm_find_base_name(path, length), name);
  of_file = (__u64)BPF_CORE_READ(bprm, file, f_path.dentry, d_name.name);
  return bpf_probe_read_kernel_str(name, NM_NAME_BYTES + 1, (void *)of_file) >
         1;
}

/* The base name of the path that was executed. comm holds 15 bytes of it, or, before
 * 6.14, the number of the descriptor that was executed. `name` is room of
 * NM_NAME_BYTES + 1 zeros. */
static __always_inline void name_of_exec(struct task_struct *task,
                                         struct linux_binprm *bprm, __u64 path,
                                         long length, __u8 *name,
                                         struct nm_process *process) {
  __u32 differs = 0;
  bool number, is_exe;

  for (int i = 0; i < 15; i++) process->bytes[i] = task->comm[i];
  number = nm_is_digit((__u8)process->bytes[0]);
  is_exe = process->bytes[0] == 'e' && process->bytes[1] == 'x' &&
           process->bytes[2] == 'e' && !process->bytes[3];
  if (length < 0 || (!process->bytes[14] && !number && !is_exe)) return;
  if (!read_name_of_exec(bprm, path, length, is_exe, name)) return;
  for (int i = 0; i < 15; i++) {
    differs |= name[i] ^ (__u8)process->bytes[i];
    /* clang 19 compares byte by byte with a branch each, and the verifier would walk all
     * 32,768 ways. */
    barrier_var(differs);
  }
  if (!differs || number || is_exe)
    __builtin_memcpy(process->bytes, name, NM_NAME_BYTES);
}

/* Whether a program is in a directory `methods`, as /usr/lib/apt/methods/https is, which
 * fetches for apt-get and others. Such a program works for the process that runs it. */
NM_GLOBAL int nm_is_method(__u64 path, long length) {
  __u64 name = nm_find_base_name(path, length) >> 8;
  __u8 text[16] = {};

  return name > path + 8 && nm_read_string(text, 10, name - 9) == 10 &&
         text[0] == '/' && text[1] == 'm' && text[2] == 'e' && text[3] == 't' &&
         text[4] == 'h' && text[5] == 'o' && text[6] == 'd' && text[7] == 's' &&
         text[8] == '/';
}

/* Whether a process keeps its name when it executes this path. `before`: its entry. */
static __always_inline bool keeps_name(const struct nm_process *before,
                                       __u64 path, long length) {
  /* #!/usr/bin/env: the second of two. */
  if (before->flags & NM_PROCESS_BY_ENV) return true;
  return nm_is_method(path, length) &&
         (before->kind != NM_KIND_SERVICE || may_be_service(before->bytes));
}

static __always_inline bool is_python(const char *name) {
  return name[0] == 'p' && name[1] == 'y' && name[2] == 't' && name[3] == 'h' &&
         name[4] == 'o' && name[5] == 'n';
}

/* Whether a string is a common path of env(1). */
NM_GLOBAL int nm_is_path_of_env(__u64 address) {
  __u8 path[16] = {};

  if (nm_read_string(path, sizeof(path), address) <= 0) return 0;
  if (path[0] == '/' && path[1] == 'u' && path[2] == 's' && path[3] == 'r')
    return path[4] == '/' && path[5] == 'b' && path[6] == 'i' &&
           path[7] == 'n' && path[8] == '/' && path[9] == 'e' &&
           path[10] == 'n' && path[11] == 'v' && !path[12];
  return path[0] == '/' && path[1] == 'b' && path[2] == 'i' && path[3] == 'n' &&
         path[4] == '/' && path[5] == 'e' && path[6] == 'n' && path[7] == 'v' &&
         !path[8];
}

static __always_inline bool is_env(const char *name) {
  return name[0] == 'e' && name[1] == 'n' && name[2] == 'v' && !name[3];
}

/* The rank of a process that is named by its executable only. */
#define NM_RANK_EXECUTABLE 255

/* A process executes a program. A script that names env(1) as its interpreter does so
 * twice: first env, under the script's name, then the program that env looks up. The
 * first leaves a mark, and the second keeps the name. Enters the process, and returns the
 * rank of its name. */
static __noinline int process_executes(struct task_struct *task,
                                       struct linux_binprm *bprm) {
  struct nm_process process = {};
  __u8 inferred[NM_NAME_BYTES + 1] = {};
  char(*service)[NM_NAME_BYTES];
  struct nm_process *before;
  struct mm_struct *mm = task->mm;
  __u32 tgid = task->tgid;
  __u64 path = bprm->exec;
  long length = nm_string_length(path);
  __u32 rank = NM_RANK_EXECUTABLE;
  __u64 found = 0, arguments = 0, loaded;
  bool is_script = false; /* that Python runs */
  int how;

  name_of_exec(task, bprm, path, length, inferred, &process);
  __builtin_memset(inferred, 0, sizeof(inferred));
  if (mm) arguments = mm->arg_start;
  if (mm && nm_is_dynamic_loader(process.bytes)) {
    loaded = nm_find_loaded(arguments, mm->arg_end);
    if (loaded) {
      path = arguments = loaded;
      length = nm_string_length(path);
      if (nm_read_found(nm_find_base_name(path, length), inferred))
        __builtin_memcpy(process.bytes, inferred, NM_NAME_BYTES);
      __builtin_memset(inferred, 0, sizeof(inferred));
    }
  }
  if (!nm_config.ranks[NM_SOURCE_COMMAND_LINE]) {
    found = 0;
  } else if (mm && is_python(process.bytes)) {
    found = nm_find_in_python(arguments, mm->arg_end);
    is_script = true;
  } else {
    found = nm_find_executed(path, length);
    is_script = found != 0;
  }
  how = nm_read_found(found, inferred);

  classify(&process);
  before = bpf_map_lookup_elem(&nm_processes, &tgid);
  if (mm && !(before && (before->flags & NM_PROCESS_BY_ENV)) &&
      !is_env(process.bytes) && nm_is_path_of_env(mm->arg_start))
    process.flags = NM_PROCESS_BY_ENV; /* the first of two */
  if (before && keeps_name(before, path, length)) {
    process.kind = before->kind;
    __builtin_memcpy(process.bytes, before->bytes, NM_NAME_BYTES);
    if (how == NM_INFER_PROGRAM) how = NM_INFER_NOTHING;
    is_script = false;
  }
  if (how == NM_INFER_PROGRAM && process.kind == NM_KIND_BINARY) {
    __builtin_memcpy(process.bytes, inferred, NM_NAME_BYTES);
    classify(&process);
  }
  if (process.kind == NM_KIND_SERVICE)
    rank = nm_config.ranks[NM_SOURCE_SERVICE_LIST];
  if (how == NM_INFER_MODULE && may_be_service(inferred)) {
    rank = nm_config.ranks[NM_SOURCE_COMMAND_LINE];
    process.kind = NM_KIND_SERVICE;
    __builtin_memcpy(process.bytes, inferred, NM_NAME_BYTES);
  } else if (how == NM_INFER_SCRIPT) {
    service = bpf_map_lookup_elem(&nm_binaries, inferred);
    if (service && may_be_service(*service)) {
      rank = nm_config.ranks[NM_SOURCE_COMMAND_LINE];
      process.kind = NM_KIND_SERVICE;
      __builtin_memcpy(process.bytes, *service, NM_NAME_BYTES);
    } else if (!service && process.kind == NM_KIND_BINARY && is_script) {
      __builtin_memcpy(process.bytes, inferred, NM_NAME_BYTES);
    }
  }
  if (bpf_map_update_elem(&nm_processes, &tgid, &process, BPF_ANY)) {
    bpf_map_delete_elem(&nm_processes, &tgid);
    COUNT(processes_full, 1);
  }
  return rank;
}

/* --- units and containers ------------------------------------------------ */

static __always_inline bool is_before(__u32 source, __u32 rank) {
  return nm_config.ranks[source] && nm_config.ranks[source] < rank;
}

/* Replaces `text`, the name of a unit, by the name of its configured service. Returns
 * false if the configuration has none for it. */
static __always_inline bool service_of_unit(__u8 *text, __u64 unit,
                                            __u32 length) {
  struct nm_unit_key key = {.bits = 8 * NM_NAME_BYTES};
  struct nm_unit_service *service;
  int rest;

  __builtin_memcpy(key.unit, text, NM_NAME_BYTES);
  service = bpf_map_lookup_elem(&nm_units, &key);
  if (!service) return false;
  rest = (int)length - (int)service->rest_from - 8;
  /* "a.*.service" and "a.service" begin alike, but the first does not match the second. A
   * shorter pattern may match. */
  if (rest < 0) {
    key.bits = 8 * (length - 8);
    service = bpf_map_lookup_elem(&nm_units, &key);
    if (!service) return false;
    rest = (int)length - (int)service->rest_from - 8;
  }
  if (!service->rest) {
    __builtin_memcpy(text, service->name, NM_NAME_BYTES);
    return true;
  }
  if (rest <= 0) return true; /* "magma@.service" */
  /* The text that '*' matches: up to ".service". Bytes are masked, because older
   * verifiers lose the bounds of a length. */
  bpf_probe_read_kernel_str(text, NM_NAME_BYTES + 1,
                            (void *)(unit + service->rest_from));
  for (int i = 0; i < NM_NAME_BYTES; i++) {
    int before_end = i - rest;

    barrier_var(before_end);
    text[i] &= before_end >> 31;
  }
  return true;
}

/* The parts of a cgroup's path that name a process: an address and an NM_CGROUP_NAME
 * each. */
struct nm_cgroup_path {
  __u64 unit, container; /* 0: none */
  __u32 unit_parsed, container_parsed;
  __u32 is_inside; /* the unit is in the container */
};

/* Writes the name of the unit to `name`, which holds zeros and has NM_NAME_BYTES. */
static __noinline int name_of_unit(const struct nm_cgroup_path *path,
                                   __u8 *name) {
  __u8 text[2 * NM_NAME_BYTES + 16] = {};
  const __u8 slash = '/';
  __u32 length, at = 0;

  if (!path || !name) return 0;
  length = nm_length_of_template(path->unit);
  if (path->is_inside) {
    at = NM_CGROUP_NAME_LENGTH(path->container_parsed);
    if (at > NM_NAME_BYTES - 1) at = NM_NAME_BYTES - 1;
    bpf_probe_read_kernel(
        text, at,
        (void *)(path->container +
                 NM_CGROUP_NAME_OFFSET(path->container_parsed)));
    bpf_probe_read_kernel(text + at, 1, &slash);
    at++;
  }
  if (length) {
    if (length > NM_NAME_BYTES) length = NM_NAME_BYTES;
    bpf_probe_read_kernel(text + at, length, (void *)path->unit);
    at += length;
    bpf_probe_read_kernel_str(
        text + at, 9,
        (void *)(path->unit + NM_CGROUP_NAME_LENGTH(path->unit_parsed) - 8));
  } else {
    bpf_probe_read_kernel_str(text + at, NM_NAME_BYTES + 1, (void *)path->unit);
  }
  __builtin_memcpy(name, text, NM_NAME_BYTES);
  return 0;
}

/* Names a process by the configured service of its unit. Returns the rank of its name
 * afterwards. A function of its own has the stack for it. */
static __noinline int name_by_unit(struct nm_process *process,
                                   const struct nm_cgroup_path *path,
                                   __u32 rank) {
  __u8 text[NM_NAME_BYTES + 1] = {};

  if (!process || !path) return rank;
  bpf_probe_read_kernel_str(text, sizeof(text), (void *)path->unit);
  if (!service_of_unit(text, path->unit,
                       NM_CGROUP_NAME_LENGTH(path->unit_parsed)) ||
      !may_be_service(text))
    return rank;
  process->kind = NM_KIND_SERVICE;
  __builtin_memcpy(process->bytes, text, NM_NAME_BYTES);
  return nm_config.ranks[NM_SOURCE_SERVICE_LIST];
}

/* Names a process by its unit or container, if that comes before `rank`, the rank of its
 * current name. */
static __noinline int name_by_cgroup(struct task_struct *task,
                                     struct nm_process *process, __u32 rank) {
  struct nm_cgroup_path path = {};
  struct cgroup_subsys_state *above;
  struct css_set *set;
  struct cgroup *cgroup;
  __u64 name, inner = 0;

  if (!task || !process) return 0;
  set = task->cgroups;
  if (!set) return 0;
  cgroup = set->dfl_cgrp;
  for (int i = 0; i < NM_CGROUP_LEVELS; i++) {
    __u32 parsed;

    if (!cgroup) break;
    /* Newer verifiers treat a loaded string as a pointer, and then would not have it as a
     * number. */
    name = 0;
    bpf_core_read(&name, sizeof(name), &cgroup->kn->name);
    parsed = nm_parse_cgroup_name(name, inner);
    if (NM_CGROUP_NAME_KIND(parsed) == NM_KIND_CONTAINER && !path.container) {
      path.container = name;
      path.container_parsed = parsed;
      path.is_inside = path.unit != 0;
    } else if (NM_CGROUP_NAME_KIND(parsed) == NM_KIND_UNIT && !path.unit) {
      path.unit = name;
      path.unit_parsed = parsed;
    }
    inner = name;
    above = cgroup->self.parent;
    if (!above) break;
    cgroup = above->cgroup;
  }
  if (path.unit && !path.is_inside && is_before(NM_SOURCE_SERVICE_LIST, rank))
    rank = name_by_unit(process, &path, rank);
  if (path.unit && is_before(NM_SOURCE_UNIT, rank)) {
    process->kind = NM_KIND_UNIT;
    name_of_unit(&path, (__u8 *)process->bytes);
    rank = nm_config.ranks[NM_SOURCE_UNIT];
  }
  if (path.container && is_before(NM_SOURCE_CONTAINER, rank)) {
    __u32 length = NM_CGROUP_NAME_LENGTH(path.container_parsed);

    if (length > NM_NAME_BYTES) length = NM_NAME_BYTES;
    process->kind = NM_KIND_CONTAINER;
    __builtin_memset(process->bytes, 0, NM_NAME_BYTES);
    bpf_probe_read_kernel(
        process->bytes, length,
        (void *)(path.container +
                 NM_CGROUP_NAME_OFFSET(path.container_parsed)));
  }
  return 0;
}

/* Names a process by its real user id, if that comes before `rank`. Returns the rank of
 * its name afterwards. */
static __always_inline __u32 name_by_user(struct nm_process *process,
                                          __u32 rank) {
  __u32 user = bpf_get_current_uid_gid();
  __u64 text[2] = {};

  if (!is_before(NM_SOURCE_USER, rank)) return rank;
  /* From the last digit to the first, which ends up in the lowest byte. */
  for (int i = 0; i < 10; i++) {
    text[1] = text[1] << 8 | text[0] >> 56;
    text[0] = text[0] << 8 | ('0' + user % 10);
    user /= 10;
    if (!user) break;
  }
  process->kind = NM_KIND_USER;
  __builtin_memset(process->bytes, 0, NM_NAME_BYTES);
  __builtin_memcpy(process->bytes, text, sizeof(text));
  return nm_config.ranks[NM_SOURCE_USER];
}

/* After process_executes(), which entered the process and returned the rank of its name:
 * replaces the name if the user id, the unit or the container comes before it. Separate
 * from the above to save stack. No other run uses the entry: the process has one thread,
 * and makes no socket meanwhile. */
static __always_inline void process_executed(struct task_struct *task,
                                             __u32 rank) {
  __u32 tgid = task->tgid;
  struct nm_process *process;

  if (!nm_config.reads_cgroups && !nm_config.ranks[NM_SOURCE_USER]) return;
  process = bpf_map_lookup_elem(&nm_processes, &tgid);
  if (!process) return;
  rank = name_by_user(process, rank);
  if (nm_config.reads_cgroups) name_by_cgroup(task, process, rank);
}

/* --- fork and exit ------------------------------------------------------- */

static __always_inline void process_forks(struct task_struct *parent,
                                          struct task_struct *child) {
  __u32 from = parent->tgid, to = child->tgid;
  struct nm_process *process;

  if (from == to) return; /* a thread */
  process = bpf_map_lookup_elem(&nm_processes, &from);
  if (!process) {
    bpf_map_delete_elem(&nm_processes, &to);
    return;
  }
  if (bpf_map_update_elem(&nm_processes, &to, process, BPF_ANY))
    COUNT(processes_full, 1);
}

static __always_inline void process_exits(struct task_struct *task) {
  __u32 tgid = task->tgid;

  /* Decremented before the tracepoint: 0 when the last thread leaves. */
  if (task->signal->live.counter) return;
  bpf_map_delete_elem(&nm_processes, &tgid);
}

/* --- The process that makes a socket ------------------------------------- */

#define NM_MOST_ANCESTORS 2

/* The entry of the process that the current one was forked from, directly or by way of
 * others, if the current one has executed nothing since. `task`: the current one. */
static __always_inline struct nm_process *process_of_ancestor(
    struct task_struct *task) {
  struct file *file = BPF_CORE_READ(task, mm, exe_file);

  for (int i = 0; file && i < NM_MOST_ANCESTORS; i++) {
    struct nm_process *process;
    __u32 tgid;

    task = BPF_CORE_READ(task, real_parent);
    if (BPF_CORE_READ(task, mm, exe_file) != file) return NULL;
    tgid = BPF_CORE_READ(task, tgid);
    process = bpf_map_lookup_elem(&nm_processes, &tgid);
    if (process) return process;
  }
  return NULL;
}

/* Names a process whose exec and fork were seen, but found no room. */
static __always_inline void process_without_room(struct nm_process *process) {
  struct task_struct *task = nm_config.task_btf
                                 ? (void *)bpf_get_current_task_btf()
                                 : (void *)bpf_get_current_task();
  struct nm_process *ancestor = process_of_ancestor(task);

  if (ancestor) {
    *process = *ancestor;
    return;
  }
  bpf_probe_read_kernel_str(
      process->bytes, NM_NAME_BYTES,
      BPF_CORE_READ(task, mm, exe_file, f_path.dentry, d_name.name));
  if (process->bytes[0]) classify(process);
}

/* The current process, `tgid`, with its name's id. NULL: nothing is known of it. `made`
 * is room for a process that has no entry. */
static __always_inline struct nm_process *process_of_new_socket(
    __u32 tgid, struct nm_process *made) {
  const bool untracked = nm_config.untracked;
  struct nm_process *process = bpf_map_lookup_elem(&nm_processes, &tgid);

  /* If no program sees exec and exit, the entry may be that of an earlier process or
   * program, and a new name is valid for this socket only. */
  if (!process || (untracked && process->stamp != process_stamp())) {
    if (!untracked) process_without_room(made);
    if (!made->bytes[0]) {
      process_by_comm(made);
      if (!made->bytes[0]) return NULL;
      classify(made);
    }
    if (!untracked &&
        bpf_map_update_elem(&nm_processes, &tgid, made, BPF_NOEXIST))
      COUNT(processes_full, 1);
    process = made;
  }
  name_process(process);
  return process;
}

#endif /* NETMETER_BPF_PROCESS_BPF_H_ */
