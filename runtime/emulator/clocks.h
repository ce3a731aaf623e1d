/* clocks.h: what each thread of a cluster of blocks is ordered behind.
 * in -> out: who meets whom, who tells whom -> whether one thing came before another.
 *
 * Vector clocks, as in FastTrack (Flanagan, Freund, PLDI 2009, doi 10.1145/1542476.1542490):
 * clock[a] is the latest time of agent a that the clock's owner is
 * ordered behind. Agents are the threads and what works beside them: the products of a warpgroup,
 * the TMA stores of a thread, the phases of an mbarrier. A second half of each clock holds the same
 * for what was also behind a proxy fence on the way, which the asynchronous proxy asks for (PTX
 * manual, "Memory Consistency Model", proxy-preserved causality order). */
#ifndef RUNTIME_EMULATOR_CLOCKS_H
#define RUNTIME_EMULATOR_CLOCKS_H

#include <stdbool.h>
#include <stdint.h>

enum { FT_CLUSTER_MOST = 16 };                       /* blocks */
enum { FT_AGENT_BITS = 13, FT_AGENTS_BESIDE = 128 }; /* the latter for each block */
enum { FT_WARPGROUP = 128, FT_WARPGROUPS_MOST = 8 }; /* threads; in a block */

enum ft_agent_kind {
  FT_PRODUCTS, /* number: warpgroup */
  FT_STORES,   /* number: thread */
  FT_LOADS     /* number: offset of their mbarrier in shared memory */
};

struct ft_clocks {
  int blocks, block_agents; /* of the cluster; threads of each, in whole warpgroups */
  int threads, stride;      /* blocks * block_agents; room for agents in half a clock */
  int agents;               /* threads first, block after block */
  unsigned first_block;     /* of the cluster: its number in the grid */
  bool fenced;              /* the second halves hold something */
  uint32_t *clocks;         /* [threads + 1][2][stride]; the last is scratch */
  struct {
    enum ft_agent_kind kind;
    int rank, number; /* of its block in the cluster; see the kinds */
  } beside[FT_CLUSTER_MOST * FT_AGENTS_BESIDE];
  uint32_t changes[FT_CLUSTER_MOST * FT_WARPGROUPS_MOST]; /* of clocks of a warpgroup's threads */
};

/* For so many threads in each block. FT_E_MEMORY. */
int ft_clocks_make(struct ft_clocks *clocks, int blocks, int threads);
void ft_clocks_free(struct ft_clocks *clocks);
/* A new cluster: nobody knows of anything, there are no agents but the threads. */
void ft_clocks_reset(struct ft_clocks *clocks, unsigned first_block);
/* A new agent of the block of this rank; -1: there is no room for one more. */
int ft_clocks_agent(struct ft_clocks *clocks, int rank, enum ft_agent_kind kind, int number);
/* A clock of its own, all zeros; to be freed. NULL: no memory. */
uint32_t *ft_clock_make(const struct ft_clocks *clocks);
void ft_clock_clear(const struct ft_clocks *clocks, uint32_t *clock);

/* A stamp is a time and an agent in 32 bits; 0 is none. */
static inline uint32_t ft_stamp(uint32_t time, int agent) {
  return time << FT_AGENT_BITS | (uint32_t)agent;
}
static inline int ft_agent_of(uint32_t stamp) {
  return (int)(stamp & ((1u << FT_AGENT_BITS) - 1));
}
/* Threads are meant by their agents from here on. */
static inline uint32_t *ft_clock_of(const struct ft_clocks *clocks, int thread) {
  return clocks->clocks + 2 * (long)thread * clocks->stride;
}
/* Whether what was stamped came before all that the owner of the clock does now. */
static inline bool ft_is_before(uint32_t stamp, const uint32_t *clock) {
  return stamp >> FT_AGENT_BITS <= clock[ft_agent_of(stamp)];
}
/* And whether it was done by the asynchronous proxy or a proxy fence lies between. */
static inline bool ft_is_fenced(const struct ft_clocks *clocks, uint32_t stamp,
                                const uint32_t *clock) {
  return ft_agent_of(stamp) >= clocks->threads || ft_is_before(stamp, clock + clocks->stride);
}
static inline uint32_t ft_stamp_now(const struct ft_clocks *clocks, int thread) {
  return ft_stamp(ft_clock_of(clocks, thread)[thread], thread);
}

/* `count` threads from `first` on meet: what each did before is ordered before what any does next.
 */
void ft_clocks_order(struct ft_clocks *clocks, int first, int count);
/* What the thread knows joins `into`, what is in `from` joins what it knows. */
void ft_clocks_release(struct ft_clocks *clocks, int thread, uint32_t *into);
void ft_clocks_acquire(struct ft_clocks *clocks, int thread, const uint32_t *from);
void ft_clock_join(const struct ft_clocks *clocks, uint32_t *to, const uint32_t *from);
/* The thread is behind this time of an agent. */
void ft_clocks_learn(struct ft_clocks *clocks, int thread, int agent, uint32_t time);
/* fence.proxy.async. */
void ft_clocks_fence(struct ft_clocks *clocks, int thread);
/* What all of `count` threads from `first` on know. */
void ft_clocks_common(const struct ft_clocks *clocks, int first, int count, uint32_t *common);

enum { FT_AGENT_WORDS = 80 };
/* Whose stamp it is: "warp 1, lane 3", "the wgmma of warpgroup 2"; where a cluster has several
 * blocks, "block 5, warp 1, lane 3". */
const char *ft_agent_text(const struct ft_clocks *clocks, uint32_t stamp,
                          char text[FT_AGENT_WORDS]);

#endif
