// SPDX-License-Identifier: BSD-3-Clause
// Debian 13's libelf.a, elfutils 0.192, lacks two functions that it calls
// (https://sourceware.org/bugzilla/show_bug.cgi?id=32293). They make and free a tree that
// only elf_getdata_rawchunk() fills, which neither libbpf nor this tree calls.

__attribute__((weak)) void eu_search_tree_init(void* tree) { (void)tree; }

__attribute__((weak)) void eu_search_tree_fini(void* tree,
                                               void (*free_node)(void*)) {
  (void)tree;
  (void)free_node;
}
