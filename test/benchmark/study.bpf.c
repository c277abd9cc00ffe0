// SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0
/*
 * One job, "count the bytes of this packet for its flow", done with each data
 * structure that meters use. All programs are run by BPF_PROG_TEST_RUN, which
 * gives them one packet again and again: each run chooses a flow by itself, by
 * a generator of its CPU, so that flows come in no order that a cache could
 * foresee. bm_base does that and nothing else: what the others take more is
 * the structure, with what it takes to make its key.
 */
#include "test/benchmark/flow.bpf.h"

#define CPUS 256
#define FLOWS 65536

/* How many flows there are: set between the runs. */
__u32 bm_flow_count = 1;
/* Zero, but the compiler does not know it. */
volatile __u64 bm_zero;

/* By CPU, one cache line each: the generator, and events that found no room. */
struct {
  __u32 random;
  __u32 pad;
  __u64 lost;
  __u64 fill[6];
} bm_cpu[CPUS] __attribute__((aligned(64)));

static __always_inline __u32 this_cpu(void) {
  return bpf_get_smp_processor_id() & (CPUS - 1);
}

static __always_inline __u32 choose_flow(void) {
  __u32 cpu = this_cpu();

  bm_cpu[cpu].random = bm_cpu[cpu].random * 1664525 + 1013904223;
  return ((__u64)bm_cpu[cpu].random * bm_flow_count) >> 32;
}

/* The flow of the packet, which is made another one by its source. */
static __always_inline struct bm_flow make_flow(struct __sk_buff *skb) {
  struct bm_flow flow = {};

  read_flow(skb, 0, &flow);
  flow.source += choose_flow();
  return flow;
}

SEC("cgroup_skb/egress")
int bm_base(struct __sk_buff *skb) {
  __u32 flow = choose_flow();

  asm volatile("" : : "r"(flow), "r"(skb->len));
  return PASS;
}

/* --- Events: one per packet, added up in user space ----------------------- */

struct bm_event {
  struct bm_flow flow;
  __u64 bytes;
};

struct bm_ring {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 16 * 1024 * 1024);
};
struct bm_ring bm_ring SEC(".maps");

static __always_inline void send_event(void *ring, struct __sk_buff *skb) {
  struct bm_event *event;
  struct bm_flow flow = make_flow(skb);

  event = bpf_ringbuf_reserve(ring, sizeof(*event), 0);
  if (!event) {
    bm_cpu[this_cpu()].lost += 1;
    return;
  }
  event->flow = flow;
  event->bytes = skb->len;
  bpf_ringbuf_submit(event, 0);
}

SEC("cgroup_skb/egress")
int bm_ringbuf(struct __sk_buff *skb) {
  send_event(&bm_ring, skb);
  return PASS;
}

/* CPU -> its ring. User space puts the rings in. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
  __uint(max_entries, CPUS);
  __type(key, __u32);
  __array(values, struct bm_ring);
} bm_rings SEC(".maps");

SEC("cgroup_skb/egress")
int bm_percpu_ring(struct __sk_buff *skb) {
  __u32 cpu = this_cpu();
  void *ring = bpf_map_lookup_elem(&bm_rings, &cpu);

  if (ring) send_event(ring, skb);
  return PASS;
}

struct {
  __uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
  __type(key, __u32);
  __type(value, __u32);
} bm_perf SEC(".maps");

SEC("cgroup_skb/egress")
int bm_perf_buffer(struct __sk_buff *skb) {
  struct bm_event event = {.flow = make_flow(skb), .bytes = skb->len};

  if (bpf_perf_event_output(skb, &bm_perf, BPF_F_CURRENT_CPU, &event,
                            sizeof(event)))
    bm_cpu[this_cpu()].lost += 1;
  return PASS;
}

/* --- Hashes, keyed by the flow -------------------------------------------- */

/* For entries of this CPU alone. */
static __always_inline void add_plain(struct bm_count *count, __u32 bytes) {
  count->bytes += bytes;
  count->packets += 1;
}

#define HASH(name, kind, how)                                         \
  struct {                                                            \
    __uint(type, kind);                                               \
    __uint(max_entries, FLOWS);                                       \
    __type(key, struct bm_flow);                                      \
    __type(value, struct bm_count);                                   \
  } name##_map SEC(".maps");                                          \
                                                                      \
  SEC("cgroup_skb/egress")                                            \
  int name(struct __sk_buff *skb) {                                   \
    struct bm_flow flow = make_flow(skb);                             \
    const struct bm_count none = {};                                  \
    struct bm_count *count = find_or_make(&name##_map, &flow, &none); \
                                                                      \
    if (count) how(count, skb->len);                                  \
    return PASS;                                                      \
  }

HASH(bm_hash, BPF_MAP_TYPE_HASH, add)
HASH(bm_lru_hash, BPF_MAP_TYPE_LRU_HASH, add)
HASH(bm_percpu_hash, BPF_MAP_TYPE_PERCPU_HASH, add_plain)

/* --- Arrays, where the place of a flow is known --------------------------- */

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, FLOWS);
  __type(key, __u32);
  __type(value, struct bm_count);
} bm_array_map SEC(".maps");

SEC("cgroup_skb/egress")
int bm_array(struct __sk_buff *skb) {
  __u32 flow = choose_flow();
  struct bm_count *count = bpf_map_lookup_elem(&bm_array_map, &flow);

  if (count) add(count, skb->len);
  return PASS;
}

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, FLOWS);
  __type(key, __u32);
  __type(value, struct bm_count);
} bm_percpu_array_map SEC(".maps");

SEC("cgroup_skb/egress")
int bm_percpu_array(struct __sk_buff *skb) {
  __u32 flow = choose_flow();
  struct bm_count *count = bpf_map_lookup_elem(&bm_percpu_array_map, &flow);

  if (count) add_plain(count, skb->len);
  return PASS;
}

/* --- A mix: the first flow of each place in an array, the others in a hash ---- */

struct bm_place {
  struct bm_flow flow;
  struct bm_count count; /* no packets: the place is free */
};

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, FLOWS / 2);
  __type(key, __u32);
  __type(value, struct bm_place);
} bm_places SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_HASH);
  __uint(max_entries, FLOWS / 2);
  __type(key, struct bm_flow);
  __type(value, struct bm_count);
} bm_displaced SEC(".maps");

SEC("cgroup_skb/egress")
int bm_mix(struct __sk_buff *skb) {
  struct bm_flow flow = make_flow(skb);
  const struct bm_count none = {};
  __u32 index =
      mix(mix(1, *(__u64 *)&flow), ((__u64 *)&flow)[1]) & (FLOWS / 2 - 1);
  struct bm_place *place = bpf_map_lookup_elem(&bm_places, &index);
  struct bm_count *count;

  if (!place) return PASS;
  if (!place->count.packets) place->flow = flow;
  if (((__u64 *)&place->flow)[0] == ((__u64 *)&flow)[0] &&
      ((__u64 *)&place->flow)[1] == ((__u64 *)&flow)[1])
    count = &place->count;
  else
    count = find_or_make(&bm_displaced, &flow, &none);
  if (count) add_plain(count, skb->len);
  return PASS;
}

/* --- The tables of others ------------------------------------------------- */

SEC("cgroup_skb/egress")
int bm_kernsnoopd(struct __sk_buff *skb) {
  struct bm_flow flow = make_flow(skb);
  /* The helpers for the thread's name and the pid cost it more than this. */
  struct bm_snoop_key key = {.comm = "subscriberdb", .pid = 4711, .family = 2};

  key.address[0] = flow.source; /* ours varies, so it takes the other's place */
  key.port = flow.target_port;
  count_snoop(&key, skb->len);
  return PASS;
}

SEC("cgroup_skb/egress")
int bm_skydive(struct __sk_buff *skb) {
  struct bm_flow flow = make_flow(skb);

  count_page(&flow, skb->len);
  return PASS;
}

SEC("cgroup_skb/egress")
int bm_netobserv(struct __sk_buff *skb) {
  struct bm_flow flow = make_flow(skb);

  count_observed(&flow, skb->len, 1);
  return PASS;
}

/* --- Ours, brought down to the same job ------------------------------------ */

/* As struct nm_entry: one cache line, found by the low bits of the cookie. */
struct bm_socket {
  __u64 cookie;
  __u32 slot;
  __u32 pad;
  __u64 fill[6];
};

/* Filled by user space: entry i is of cookie i, in slot i. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, FLOWS);
  __type(key, __u32);
  __type(value, struct bm_socket);
} bm_sockets SEC(".maps");

/* As struct nm_cell: one cache line for each slot and CPU. */
struct bm_cell {
  struct bm_count count;
  __u64 busy; /* of slot 0: the CPU is adding */
  __u64 fill[5];
};

/* slot * bm_num_cpus + cpu, and slot FLOWS for the overflow. Sized by user space. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct bm_cell);
} bm_cells SEC(".maps");

const volatile __u32 bm_num_cpus = 1;

/* The socket of a test run is always another one: its cookie is asked for, at
 * the full price, and then stands for the one that was chosen. */
static __always_inline struct bm_cell *find_cell(struct __sk_buff *skb) {
  __u64 cookie = bpf_get_socket_cookie(skb);
  struct bm_socket *socket;
  __u32 index;

  cookie = (cookie & bm_zero) + choose_flow();
  index = cookie & (FLOWS - 1);
  socket = bpf_map_lookup_elem(&bm_sockets, &index);
  if (!socket) return 0;
  index = (socket->cookie == cookie ? socket->slot : FLOWS) * bm_num_cpus +
          bpf_get_smp_processor_id();
  return bpf_map_lookup_elem(&bm_cells, &index);
}

SEC("cgroup_skb/egress")
int bm_ours_atomic(struct __sk_buff *skb) {
  struct bm_cell *cell = find_cell(skb);

  if (cell) add(&cell->count, skb->len);
  return PASS;
}

SEC("cgroup_skb/egress")
int bm_ours_plain(struct __sk_buff *skb) {
  struct bm_cell *cell = find_cell(skb);

  if (cell) add_plain(&cell->count, skb->len);
  return PASS;
}

/* Does what add_sent() of bpf/add.bpf.h does on a kernel that may preempt a program.
 * Loaded if the kernel has an exchange. */
SEC("cgroup_skb/egress")
int bm_ours_claimed(struct __sk_buff *skb) {
  struct bm_cell *cell = find_cell(skb), *first;
  __u32 cpu = bpf_get_smp_processor_id();

  if (!cell) return PASS;
  first = bpf_map_lookup_elem(&bm_cells, &cpu);
  if (!first) return PASS;
  if (__sync_lock_test_and_set(&first->busy, 1)) {
    add(&cell->count, skb->len);
    return PASS;
  }
  add_plain(&cell->count, skb->len);
  *(volatile __u64 *)&first->busy = 0;
  return PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
