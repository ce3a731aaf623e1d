// fatune: backward attention, sm_80
// request  backward bf16 d128 causal dropout mask=128x128
// config   mma_backward block_m=32 block_n=64 warps=8 stages=2 column_warps=1 query_parts=1 deferred_dq=1 ctas_per_sm=1
// budget   81408 bytes of shared memory, 256 threads, about 120 of 255 registers
// parts    mma_backward.cu.in, parts/ptx_common.cu.in, parts/ptx_memory.cu.in, parts/ptx_mma.cu.in, parts/ptx_copies.cu.in, parts/pairs.cu.in, parts/ptx_barriers.cu.in, parts/dependent_none.cu.in, parts/ptx_reductions.cu.in, parts/ptx_order.cu.in, parts/score_function_none.cu.in, parts/arguments.cu.in, parts/walk_parts_none.cu.in, parts/sequence.cu.in, parts/sequence_rows.cu.in, parts/rows_of_heads.cu.in, parts/outputs.cu.in, parts/visibility.cu.in, parts/query_tiles.cu.in, parts/sink_gradient_none.cu.in, parts/key_order_blocks.cu.in, parts/key_tile.cu.in, parts/early_dq_none.cu.in, parts/query_walk_blocks.cu.in, parts/score_transposed_none.cu.in, parts/dropout.cu.in, parts/dropout_transposed.cu.in, parts/ds_unit_none.cu.in, parts/copy_tile.cu.in, parts/chunks.cu.in, parts/store_rows.cu.in, parts/staging.cu.in, parts/fragments.cu.in, parts/backward_tile.cu.in, parts/backward_roles.cu.in, parts/dq_tickets_none.cu.in, parts/rows_of_dq.cu.in, parts/part_sums_none.cu.in, parts/dq_sums.cu.in, parts/backward_dq.cu.in, parts/backward_prepare.cu.in, parts/epilogue_backward.cu.in, parts/backward_step.cu.in, parts/work_list_none.cu.in
// again    fatune emit 'backward bf16 d128 nq1 causal dropout mask=128x128' --gpu sm_80 --config 'mma_backward block_m=32 block_n=64 warps=8 stages=2 column_warps=1 query_parts=1 deferred_dq=1 ctas_per_sm=1'
//
// Three kernels, one after the other on a stream; where there is a fatune_work_list, it lists the key tiles before them:
//   fatune_prepare  q_tiles * batch * heads_q blocks of THREADS: row statistics, zeros in dq_sum, first tickets in counters
//   fatune_kernel   k_tiles * batch * heads_kv blocks of THREADS: dK, dV, and what dQ is the sum of
//   fatune_convert  q_tiles * batch * heads_q blocks of DQ_THREADS: dQ
// The gradients of O = softmax(scale Q K^T) V by tiles (FlashAttention, arXiv 2205.14135 and 2307.08691):
//   P = exp(scale Q K^T - LSE), delta = rowsum(dO o O) - dLSE, dS = P o (dO V^T - delta),
//   dV = P^T dO, dK = scale dS^T Q, dQ = scale dS K.
// A block owns BLOCK_N keys of one head of K and V. It walks over the queries that see them, BLOCK_M at a time, of all
// query heads of its group, and holds dK and dV in registers. Scores are made transposed, rows of keys: as they come
// from the one product they are the first operand of the next.

// ---- constants ---------------------------------------------------------------------------------
constexpr int BLOCK_M = 32;    // query rows of a step
constexpr int BLOCK_N = 64;    // keys of a block
constexpr int WARPS = 8;        // half of them sum dV up, half of them dK
constexpr int THREADS = 32 * WARPS;
constexpr int STAGES = 2;      // Q and dO tiles in shared memory
constexpr int COLUMN_WARPS = 1;  // warps that share keys, each with a part of the columns of dK, dV
constexpr int PARTS = 1;        // parts of a step's queries, whose scores are in registers in turn
constexpr int CTAS_PER_SM = 1;
constexpr bool KV_IN_REGS = false;    // a warp's rows of K or V
constexpr bool ADDS_DQ = true;       // key tiles add to dQ; else dQ has a pass of its own
constexpr bool DEFERRED_DQ = true;   // a step adds the dQ of the step before
constexpr int DQ_SUMS = 1;          // fp32 sums of a query tile's dQ
constexpr int PREPARE_THREADS = THREADS, DQ_THREADS = 256;  // of the first and the last kernel

constexpr int HEAD_DIM = 128;   // of Q, K
constexpr int HEAD_DIM_V = 128; // of V, O
constexpr int D_PAD = 128;      // in shared memory: multiples of 16, the rest zeros
constexpr int DV_PAD = 128;
constexpr int MOST_DEPTH = D_PAD > DV_PAD ? D_PAD : DV_PAD;
constexpr int QK_STRIDE = 256;  // bytes from row to row of Q, K
constexpr int V_STRIDE = 256;   // bytes from row to row of V, dO
constexpr int P_STRIDE = 80;   // bytes from key to key of P, dS

constexpr int KEY_WARPS = WARPS / 2 / COLUMN_WARPS;
constexpr int WARP_KEYS = BLOCK_N / KEY_WARPS;
constexpr int PART_QUERIES = BLOCK_M / PARTS / COLUMN_WARPS;  // of which a warp makes scores at a time
constexpr int DRAWS_AHEAD = 0;                    // dropout is drawn where it is needed
constexpr int M_TILES = WARP_KEYS / 16;     // mma tiles of a warp: keys,
constexpr int N_TILES = PART_QUERIES / 8;   // queries of a part,
constexpr int SUM_TILES = (MOST_DEPTH / 16 + COLUMN_WARPS - 1) / COLUMN_WARPS * 2;  // columns of dK or dV

constexpr int Q_STAGE = BLOCK_M * QK_STRIDE, DO_STAGE = BLOCK_M * V_STRIDE, STATS_STAGE = BLOCK_M * 2 * 4;  // bytes
constexpr int P_TILE = BLOCK_N * P_STRIDE;
constexpr int SMEM_K = 0, SMEM_V = 16384;
constexpr int SMEM_Q = 32768, SMEM_DO = 49152;
constexpr int SMEM_P = 65536, SMEM_DS = 70656;
constexpr int SMEM_STATS = 80896;
constexpr int MASK_ROWS = 128, MASK_COLS = 128;  // of a block of the block mask; 0: none

#define MINUS_INFINITY __int_as_float(0xff800000)

// ---- PTX: one wrapper for each instruction. Here numbers and bits ---------------------------------------
typedef unsigned short element;  // bf16, moved and multiplied as 16-bit patterns
typedef unsigned long long u64;
constexpr int CHUNK = 16 / sizeof(element);  // elements of 16 bytes

__device__ __forceinline__ unsigned shared_address(const void *pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// 2^x; 2^-inf = 0.
__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float lg2(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1 / x to within an ulp.
__device__ __forceinline__ float rcp(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Two fp32 values as a pair of bf16, round to nearest even; `low` in the low half.
__device__ __forceinline__ unsigned pack(float low, float high) {
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// A pair of bf16 as fp32.
__device__ __forceinline__ float low_half(unsigned pair) {
  float x;
  asm("{ .reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {0, l}; }" : "=f"(x) : "r"(pair));
  return x;
}

__device__ __forceinline__ float high_half(unsigned pair) {
  float x;
  asm("{ .reg .b32 h; and.b32 h, %1, 0xffff0000; mov.b32 %0, h; }" : "=f"(x) : "r"(pair));
  return x;
}

// All ones in each 16-bit half where a >= b, both read as fp16.
__device__ __forceinline__ unsigned halves_ge(unsigned a, unsigned b) {
  unsigned mask;
  asm("set.ge.u32.f16x2 %0, %1, %2;" : "=r"(mask) : "r"(a), "r"(b));
  return mask;
}

// Bytes of a (0 to 3) and b (4 to 7), chosen by the digits of `choice`, the lowest first; with 8 added to a digit, eight times the
// highest bit of the byte.
__device__ __forceinline__ unsigned prmt(unsigned a, unsigned b, unsigned choice) {
  unsigned r;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(choice));
  return r;
}

// A value that is the same in all lanes, said so to the compiler: it can then live in a uniform register.
__device__ __forceinline__ unsigned uniform(unsigned x) {
  unsigned y;
  asm("redux.sync.or.b32 %0, %1, 0xffffffff;" : "=r"(y) : "r"(x));
  return y;
}

// Keeps the computation of x at this place: the compiler would otherwise move it down to where x is used.
__device__ __forceinline__ void pin(unsigned &x) { asm volatile("" : "+r"(x)); }

// The same of an address in global memory.
template <class T> __device__ __forceinline__ void pin(const T *&x) {
  asm volatile("" : "+l"(x));
  __builtin_assume(__isGlobal(x));
}

// ---- PTX: loads and stores, so that neither is merged, split or moved ------------------------------------
__device__ __forceinline__ void store_shared_4(unsigned to, unsigned value) {
  asm volatile("st.shared.u32 [%0], %1;" :: "r"(to), "r"(value) : "memory");
}

__device__ __forceinline__ float load_shared_float(unsigned from) {
  float x;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(from) : "memory");
  return x;
}

__device__ __forceinline__ void load_shared_8(float (&r)[2], unsigned from) {
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(r[0]), "=f"(r[1]) : "r"(from) : "memory");
}

__device__ __forceinline__ void store_shared_8(unsigned to, const float (&r)[2]) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" :: "r"(to), "f"(r[0]), "f"(r[1]) : "memory");
}

__device__ __forceinline__ void load_shared_16(unsigned (&r)[4], unsigned from) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from) : "memory");
}

__device__ __forceinline__ void load_global_16(unsigned (&r)[4], const element *from) {
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "l"(from) : "memory");
}

__device__ __forceinline__ void store_global_16(element *to, const unsigned (&r)[4]) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
               :: "l"(to), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}

__device__ __forceinline__ void store_shared_16(unsigned to, const float (&r)[4]) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};"
               :: "r"(to), "f"(r[0]), "f"(r[1]), "f"(r[2]), "f"(r[3]) : "memory");
}

// ---- PTX: ldmatrix, mma.sync ------------------------------------------------------------------------------
// Four 8x8 matrices of 16-bit elements; lane i gives the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ void ldmatrix_x4(unsigned (&r)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}

// The same with each matrix transposed on the way.
__device__ __forceinline__ void ldmatrix_x4_trans(unsigned (&r)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}

// c += A B for a 16x16 tile A (row-major fragments) and a 16x8 tile B (column-major), fp32 accumulators.
__device__ __forceinline__ void mma_m16n8k16(float (&c)[4], const unsigned (&a)[4], unsigned b0,
                                             unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// ---- PTX: cp.async ----------------------------------------------------------------------------------------
// 16 bytes from global to shared memory; zeros where `valid` is false (the source is not touched then).
__device__ __forceinline__ void copy_16(unsigned to, const element *from, bool valid) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(to), "l"(from), "r"(bytes)
               : "memory");
}

// Closes a group of copies; wait_copies<N> waits until at most the N youngest groups are under way.
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int YOUNGEST> __device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" :: "n"(YOUNGEST) : "memory");
}

// ---- a fragment: 16 x 16 elements in the registers of a warp --------------------------------------------------------------
// A lane has four pairs of neighbouring columns: pair i is of row g + 8 (i % 2), columns 8 (i / 2) + 2 t and one more,
// where g = lane / 4 and t = lane % 4. Accumulators have the same pairs.
constexpr int FRAGMENT = 4;  // registers; each is a pair

__device__ __forceinline__ void set_pair(unsigned (&r)[FRAGMENT], int i, float first, float second) {
  r[i] = pack(first, second);
}

__device__ __forceinline__ float first_of(const unsigned (&r)[FRAGMENT], int i) { return low_half(r[i]); }
__device__ __forceinline__ float second_of(const unsigned (&r)[FRAGMENT], int i) { return high_half(r[i]); }

// kept: all ones in the low half where the first of the pair is kept, in the high half for the second. Others become 0.
__device__ __forceinline__ void keep_pair(unsigned (&r)[FRAGMENT], int i, unsigned kept) { r[i] &= kept; }

// Of a fragment that was all ones.
__device__ __forceinline__ bool first_kept(const unsigned (&r)[FRAGMENT], int i) { return r[i] & 1; }
__device__ __forceinline__ bool second_kept(const unsigned (&r)[FRAGMENT], int i) { return r[i] >> 31; }

// The pair with a sign where it is not kept.
__device__ __forceinline__ void mark_pair(unsigned (&marked)[FRAGMENT], const unsigned (&r)[FRAGMENT], int i, unsigned kept) {
  marked[i] = r[i] | (~kept & 0x80008000u);
}

// Zeroes what has a sign.
__device__ __forceinline__ void drop_marked(unsigned (&r)[FRAGMENT]) {
  #pragma unroll
  for (int i = 0; i < FRAGMENT; ++i) r[i] &= ~((r[i] >> 15 & 0x00010001u) * 0xFFFFu);
}

// The sum of the products of the elements of two chunks.
__device__ __forceinline__ float dot_chunks(const unsigned (&a)[4], const unsigned (&b)[4]) {
  float sum = 0.f;
  #pragma unroll
  for (int w = 0; w < 4; ++w) sum += low_half(a[w]) * low_half(b[w]) + high_half(a[w]) * high_half(b[w]);
  return sum;
}

// ---- PTX: named barriers ----------------------------------------------------------------------------------
// Numbers 1 to 15; 0 is the barrier of the whole block. `threads` threads have to come to one. Those who arrive go on at
// once, those who sync wait for all.
__device__ __forceinline__ void barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(threads) : "memory");
}

__device__ __forceinline__ void barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" :: "r"(id), "r"(threads) : "memory");
}

// ---- a kernel begins when the one before it has ended --------------------------------------------------------
__device__ __forceinline__ void next_grid_may_begin() {}
__device__ __forceinline__ void wait_for_grid_before() {}

// ---- PTX: additions to global memory that return nothing --------------------------------------------------
__device__ __forceinline__ void red_add(float *to, float x) {
  asm volatile("red.global.add.f32 [%0], %1;" :: "l"(to), "f"(x) : "memory");
}

// ---- PTX: loads and additions that order other accesses ---------------------------------------------------
// What a block wrote before it released is seen by a block that has acquired.
__device__ __forceinline__ int load_acquire(const int *from) {
  int x;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(x) : "l"(from) : "memory");
  return x;
}

__device__ __forceinline__ int load_relaxed(const int *from) {
  int x;
  asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(x) : "l"(from) : "memory");
  return x;
}

__device__ __forceinline__ void red_add_release(int *to, int x) {
  asm volatile("fence.acq_rel.gpu; red.relaxed.gpu.global.add.s32 [%0], %1;" :: "l"(to), "r"(x) : "memory");
}

// ---- the argument ------------------------------------------------------------------------------
// The host fills it: generator/arguments.def. Strides are in elements.
// From one batch entry, row, head to the next, in elements.
struct Stride {
  long long batch;
  long long row;
  long long head;
};
static_assert(sizeof(Stride) == 24, "the host fills 24 bytes");

// A tensor [batch, rows, heads, head dim]; its rows are 16-byte aligned.
struct Tensor {
  element *data;
  Stride stride;
};
static_assert(sizeof(Tensor) == 32, "the host fills 32 bytes");

// The dropout mask.
struct Dropout {
  u64 seed;                          // read where seed_address is null
  u64 offset;                        // read where offset_address is null
  const u64 *seed_address;           // or null
  const u64 *offset_address;         // or null
  unsigned threshold;                // of 2^14: an element is dropped when its 14 bits are below
  float rescale;                     // 1 / (1 - threshold / 2^14); 0 when everything is dropped
  int heads;                         // query heads of a batch entry of the whole problem, of which this may be a part
  int first_head;                    // heads of it over all batch entries before this part's first
  int first_query;                   // its queries before this part's first, a multiple of 64
  int first_key;                     // likewise of keys
};
static_assert(sizeof(Dropout) == 56, "the host fills 56 bytes");

// The kept blocks of one row or column of mask blocks.
struct __align__(16) MaskList {
  int block;                         // number of that row or column
  int count;                         // kept blocks
  long long start;                   // of the list in MaskLists::blocks
};
static_assert(sizeof(MaskList) == 16, "the host fills 16 bytes");

// The kept blocks of a block mask, one list for each row or column of blocks.
struct MaskLists {
  const MaskList *lists;             // of rows: the longest list of a head first; of columns: in their order
  const int *blocks;                 // ascending within a list; negative: the score function hides nothing of the block, whose number is in the other bits
  long long batch_lists;             // lists from one batch entry to the next; 0: broadcast
  long long head_lists;              // lists from one query head to the next; 0: broadcast
};
static_assert(sizeof(MaskLists) == 32, "the host fills 32 bytes");

// Which keys a query sees.
struct Visibility {
  MaskLists rows;                    // for each row of mask blocks its kept columns
  MaskLists columns;                 // for each column of mask blocks its kept rows; backward only
  int first_diagonal;                // query i sees keys from i + first_diagonal on,
  int last_diagonal;                 // up to i + last_diagonal
};
static_assert(sizeof(Visibility) == 72, "the host fills 72 bytes");

// How many rows there are. With packed heads nq, heads_q and group count packed rows and heads.
struct Sequence {
  int nq;                            // queries of a batch entry
  int nk;                            // keys of a batch entry
  int heads_q;
  int group;                         // query heads per kv head
  int heads_kv;
  int pack_code;                     // of packed heads, as ft_pack_code has it: a query has 2^(pack_code % 256) rows, the last pack_code / 256 of them of no head; 0: none are packed
  int batch;                         // batch entries
};
static_assert(sizeof(Sequence) == 28, "the host fills 28 bytes");

// Work tiles of a head, and the order in which heads are taken.
struct Schedule {
  int q_tiles;                       // query tiles; under a block mask as many as fill its rows of blocks
  int k_tiles;                       // key tiles, likewise; backward only
  int l2_section_heads;              // batch_heads whose K and V stay in L2 together (backward: whose Q and dO do)
  int remainder_heads;               // the last batch_heads, whose work tiles even the shares out (schedule_balanced)
};
static_assert(sizeof(Schedule) == 16, "the host fills 16 bytes");

// Under a block mask the order in which the key tiles of a head start, and which of their walks are divided; else all 0.
struct ColumnOrder {
  const int *columns;                // one for each list of MaskLists: columns of mask blocks, those with most kept blocks first; null: in their order
  float *sums;                       // [batch, heads_kv, parts, BLOCK_N * (HEAD_DIM_V + HEAD_DIM)]: dV and dK of the parts
  int parts;                         // of the divided key tiles of a head
  int ends[6];                       // key tiles of a head that are divided into 64 parts; into 64 or 32; and so on, into 2 or more
};
static_assert(sizeof(ColumnOrder) == 48, "the host fills 48 bytes");

// The factor of the scores.
struct Softmax {
  float scale;                       // > 0
  float scale_log2;                  // scale * log2(e)
};
static_assert(sizeof(Softmax) == 8, "the host fills 8 bytes");

// A work tile of a ragged batch, the same of every head.
struct __align__(16) WorkEntry {
  int batch;                         // number of the sequence
  int row;                           // its first row: of queries, or of keys where it is a key tile
  int nq;                            // queries of the sequence; keys
  int nk;
  int first_q;                       // rows of Q of all sequences before it; of K
  int first_k;
  int first_diagonal;                // as in Visibility, of this sequence
  int last_diagonal;
};
static_assert(sizeof(WorkEntry) == 32, "the host fills 32 bytes");

// Diagonals that are seen: query i lies on diagonal 0 with key i.
struct Diagonals {
  int first;
  int last;
};
static_assert(sizeof(Diagonals) == 8, "the host fills 8 bytes");

// Sequences of different lengths, one behind the other in the rows of all tensors; addresses are null where there are none.
struct Ragged {
  const int *starts_q;               // [sequences + 1]: rows of Q before each sequence; the last: of all
  const int *starts_k;               // of K and V, likewise; null where they are in pages
  const int *used_q;                 // [sequences]: how many of its rows of Q a sequence uses; null: all
  const int *used_k;                 // of K and V, likewise
  WorkEntry *list;                   // [numbers], written by fatune_work_list; of the backward key tiles
  int *entries;                      // how many the list has, likewise
  int sequences;
  int numbers;                       // that those tiles may have
  int numbers_q;                     // that query tiles may have
  int rows_q;                        // of all sequences
  Diagonals top_left;                // that a query sees, where they are also of bottom_right
  Diagonals bottom_right;            // nk - nq less than they are in each sequence
};
static_assert(sizeof(Ragged) == 80, "the host fills 80 bytes");

// The argument of all kernels of a backward.
struct BackwardParams {
  Tensor q;
  Tensor k;
  Tensor v;
  Tensor o;
  Tensor dout;
  Tensor dq;                         // written
  Tensor dk;                         // written
  Tensor dv;                         // written
  const float *lse;                  // [batch, heads_q, nq]
  const float *dlse;                 // likewise, or null
  float *dq_sum;                     // [batch, heads_q, q_tiles, DQ_SUMS, BLOCK_M * D_PAD], by fragments of the dQ product; null with dq_mode=2
  float *row_stats;                  // [batch, heads_q, q_tiles, 2, BLOCK_M]: LSE log2(e), then -delta
  int *counters;                     // [batch, heads_q, q_tiles, DQ_SUMS, ADDERS]: the ticket that adds to dq_sum next; null where adds have no order
  unsigned *tiles_taken;             // key tiles that blocks have taken beyond the first of each; null where a block has one
  int *section_counts;               // of each L2 section the warps that have added all of their dQ; null where the last kernel does not look
  Dropout dropout;
  Visibility visibility;
  Sequence sequence;
  Schedule schedule;
  ColumnOrder column_order;
  Softmax softmax;
  const float *sinks;                // [heads_q]; null without sinks, likewise below
  float *dsinks;                     // [heads_q], written
  float *sink_sums;                  // [batch, heads_q, q_tiles, PREPARE_THREADS / 32]: of the rows of a tile what a warp adds to dsinks
  Ragged ragged;                     // where it is, [batch, heads_q, q_tiles] above is [heads_q, numbers_q]
};
static_assert(sizeof(BackwardParams) == 648, "the host fills 648 bytes");


// ---- walk parts: a key tile has all queries of its walk ---------------------------------------------------------------
constexpr bool WALKS_ARE_DIVIDED = false;

struct WalkPart {};

__device__ __forceinline__ bool is_whole(const WalkPart &) { return true; }
__device__ __forceinline__ int places_of_head(const BackwardParams &params) { return params.schedule.k_tiles; }
__device__ __forceinline__ WalkPart part_at(const BackwardParams &, int place, int &rank) {
  rank = place;
  return {};
}
__device__ __forceinline__ int begin_of_part(const WalkPart &, int) { return 0; }
__device__ __forceinline__ int end_of_part(const WalkPart &, int steps) { return steps; }
__device__ __forceinline__ unsigned query_blocks(const BackwardParams &) { return gridDim.x; }

// ---- rows of a tile: queries and heads ----------------------------------------------------------------------------------
// Row i is query i of its head.
__device__ __forceinline__ int pack_bits_of(const Sequence &) { return 0; }
__device__ __forceinline__ bool is_of_head(const Sequence &, int) { return true; }
__device__ __forceinline__ int query_of(const Sequence &, int i) { return i; }
__device__ __forceinline__ int head_of(const Sequence &, int head, int) { return head; }

// ---- rows of a batch entry: queries, heads, their places ----------------------------------------------------------------
__device__ __forceinline__ int queries_of_pack(const Sequence &sequence) { return sequence.nq; }
__device__ __forceinline__ int place_in_heads(const Sequence &, int i) { return i; }

// The number of a head over all batch entries.
__device__ __forceinline__ int batch_head_of(const Sequence &sequence, int batch, int head) {
  return batch * sequence.heads_q + head;
}

// Where the LSE of row i lies.
template <class Params>
__device__ __forceinline__ long long lse_index(const Params &params, int batch, int head, int i) {
  const Sequence &sequence = params.sequence;
  return (long long)batch_head_of(sequence, batch, head) * queries_of_pack(sequence) + place_in_heads(sequence, i);
}

__device__ __forceinline__ element *row_of(const Tensor &tensor, int batch, int head, int row) {
  return tensor.data + batch * tensor.stride.batch + head * tensor.stride.head + row * tensor.stride.row;
}

// ---- sequence: where the rows of a batch entry lie ------------------------------------------------------------------
// Batch entries are alike: nothing is to be known of the one that a tile belongs to.
struct SequencePlace {};

// The arguments as a work tile of that entry is to see them.
template <class Params> __device__ __forceinline__ const Params &at_place(const Params &params, const SequencePlace &) {
  return params;
}

// What is to be known of a batch entry.
template <class Params> __device__ __forceinline__ SequencePlace batch_place(const Params &, int) { return {}; }

// ---- what a kernel stores: O, or dQ, dK and dV ---------------------------------------------------------------------------
typedef element output;
constexpr int OUTPUT_ELEMENTS = 1;  // of memory

__device__ __forceinline__ output *output_row(const Tensor &tensor, int batch, int head, int row) {
  return row_of(tensor, batch, head, row);
}

__device__ __forceinline__ void store_two(output *to, float first, float second) {
  *reinterpret_cast<unsigned *>(to) = pack(first, second);
}

__device__ __forceinline__ void store_four(output *to, const float (&x)[4]) {
  const unsigned low = pack(x[0], x[1]), high = pack(x[2], x[3]);
  *reinterpret_cast<u64 *>(to) = u64(high) << 32 | low;
}

// ---- visibility: which keys a query sees -----------------------------------------------------------------------------
// This is the one place on the device that says so; generator/visibility.c is its twin on the host. The keys that a query
// sees are an interval, and so are the queries that see a key. Neither end of either decreases from one row to the next.
constexpr bool HIDES_FIRST_KEYS = false;  // there are keys before the interval,
constexpr bool HIDES_LAST_KEYS = true;   // after it

struct Interval {
  int begin, end;            // end - 1 is the last; begin may be below 0 and, where there is none, beyond end
};

// An entry of MaskLists::blocks: the number of a block, and whether the score function is known to hide nothing of it.
__device__ __forceinline__ int block_of(int entry) { return entry & 0x7fffffff; }
__device__ __forceinline__ bool is_seen_whole(int entry) { return entry < 0; }

// The keys that row i sees.
__device__ __forceinline__ Interval keys_seen(const Sequence &sequence, const Visibility &visibility, int i) {
  const int query = query_of(sequence, i);
  return {HIDES_FIRST_KEYS ? query + visibility.first_diagonal : 0,
          HIDES_LAST_KEYS ? min(sequence.nk, query + visibility.last_diagonal + 1) : sequence.nk};
}

// The queries that see key j, where heads are not packed.
__device__ __forceinline__ Interval queries_seeing(const Sequence &sequence, const Visibility &visibility, int j) {
  return {HIDES_LAST_KEYS ? j - visibility.last_diagonal : 0,
          HIDES_FIRST_KEYS ? min(sequence.nq, j - visibility.first_diagonal + 1) : sequence.nq};
}

// Of `count` keys from `key` on: whether rows first to last see none of them, and whether they see all.
__device__ __forceinline__ bool is_hidden(const Sequence &sequence, const Visibility &visibility, int first, int last,
                                          int key, int count) {
  return (HIDES_LAST_KEYS && key >= keys_seen(sequence, visibility, last).end) ||
         (HIDES_FIRST_KEYS && key + count <= keys_seen(sequence, visibility, first).begin);
}

__device__ __forceinline__ bool is_full(const Sequence &sequence, const Visibility &visibility, int first, int last,
                                        int key, int count) {
  return key + count <= keys_seen(sequence, visibility, first).end &&
         (!HIDES_FIRST_KEYS || key >= keys_seen(sequence, visibility, last).begin);
}

// Tiles of BLOCK_N keys of which rows first to last see some key.
template <int BLOCK_N>
__device__ __forceinline__ Interval key_tiles_seen(const Sequence &sequence, const Visibility &visibility, int first,
                                                   int last) {
  const int begin = HIDES_FIRST_KEYS ? max(0, keys_seen(sequence, visibility, first).begin) : 0;
  const int end = keys_seen(sequence, visibility, last).end;
  return {begin / BLOCK_N, end > begin ? (end + BLOCK_N - 1) / BLOCK_N : begin / BLOCK_N};
}

// Tiles of BLOCK_N keys of which they see all: full tiles. There are none where begin is not below end.
template <int BLOCK_N>
__device__ __forceinline__ Interval key_tiles_full(const Sequence &sequence, const Visibility &visibility, int first,
                                                   int last) {
  const int begin = HIDES_FIRST_KEYS ? (max(0, keys_seen(sequence, visibility, last).begin) + BLOCK_N - 1) / BLOCK_N : 0;
  return {begin, max(keys_seen(sequence, visibility, first).end, 0) / BLOCK_N};
}

// First key of one of these tiles: they lie side by side.
template <int BLOCK_N> __device__ __forceinline__ int key_of_tile(int tile) { return tile * BLOCK_N; }

// Tiles of BLOCK_M queries of which some see a key from first to last. `last` may lie beyond the last key.
template <int BLOCK_M>
__device__ __forceinline__ Interval query_tiles_seeing(const Sequence &sequence, const Visibility &visibility, int first,
                                                       int last) {
  const int begin = max(0, queries_seeing(sequence, visibility, first).begin);
  const int end = queries_seeing(sequence, visibility, min(last, sequence.nk - 1)).end;
  return {begin / BLOCK_M, end > begin ? (end + BLOCK_M - 1) / BLOCK_M : begin / BLOCK_M};
}

// S = -inf where the row does not see the key. Lane (g, t) holds rows g, g + 8 and keys 2 t, 2 t + 1 of each 16x8 tile,
// so the ends of a row's interval, relative to this lane's first key, decide by constants.
template <int M, int N>
__device__ __forceinline__ void hide_scores(float (&rS)[M][N][4], const Sequence &sequence,
                                            const Visibility &visibility, int first_row, int first_key, int lane) {
  #pragma unroll
  for (int m = 0; m < M; ++m) {
    #pragma unroll
    for (int h = 0; h < 2; ++h) {
      const Interval seen = keys_seen(sequence, visibility, first_row + m * 16 + h * 8 + lane / 4);
      const int begin = seen.begin - first_key - lane % 4 * 2, end = seen.end - first_key - lane % 4 * 2;
      #pragma unroll
      for (int n = 0; n < N; ++n) {
        if (n * 8 >= end || (HIDES_FIRST_KEYS && n * 8 < begin)) rS[m][n][2 * h] = MINUS_INFINITY;
        if (n * 8 + 1 >= end || (HIDES_FIRST_KEYS && n * 8 + 1 < begin)) rS[m][n][2 * h + 1] = MINUS_INFINITY;
      }
    }
  }
}

// The same of S^T: lane (g, t) holds keys g, g + 8 and queries 2 t, 2 t + 1. Queries beyond the last are not looked at.
template <int M, int N>
__device__ __forceinline__ void hide_transposed(float (&rS)[M][N][4], const Sequence &sequence,
                                                const Visibility &visibility, int first_key, int first_query, int lane) {
  #pragma unroll
  for (int m = 0; m < M; ++m) {
    #pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int key = first_key + m * 16 + h * 8 + lane / 4;
      const Interval seen = queries_seeing(sequence, visibility, key);
      const int of_key = HIDES_LAST_KEYS ? seen.begin - first_query - lane % 4 * 2 : 0;
      const int begin = key < sequence.nk ? of_key : 8 * N, end = seen.end - first_query - lane % 4 * 2;
      #pragma unroll
      for (int n = 0; n < N; ++n) {
        if (n * 8 < begin || (HIDES_FIRST_KEYS && n * 8 >= end)) rS[m][n][2 * h] = MINUS_INFINITY;
        if (n * 8 + 1 < begin || (HIDES_FIRST_KEYS && n * 8 + 1 >= end)) rS[m][n][2 * h + 1] = MINUS_INFINITY;
      }
    }
  }
}

// ---- query tiles --------------------------------------------------------------------------------------------------------
// The first kernel and the last one have a block for each query tile of each head. They begin with the last heads, the main
// kernel with the first ones: each finds in the L2 cache what the kernel before it touched last.
struct QueryTile {
  int batch, head;
  int number;                // among those of its head
  int of_all;                // among those of all heads: tile_number
  SequencePlace place;
};

// The query tile of this block. Blocks begin with the last heads, or with FIRST_HEADS_FIRST with the first.
template <bool FIRST_HEADS_FIRST = false>
__device__ __forceinline__ QueryTile find_query_tile(const BackwardParams &params) {
  const int heads = params.sequence.heads_q, q_tiles = params.schedule.q_tiles;
  const int of_block = int(blockIdx.x) / q_tiles, number = int(blockIdx.x) % q_tiles;
  const int batch_head = FIRST_HEADS_FIRST ? of_block : params.sequence.batch * heads - 1 - of_block;
  return {batch_head / heads, batch_head % heads, number, batch_head * q_tiles + number, {}};
}

// The number, over all heads, of the tile that begins with query q0. There are as many blocks, so it is below 2^31.
__device__ __forceinline__ int tile_number(const BackwardParams &params, const SequencePlace &, int batch, int head, int q0) {
  return batch_head_of(params.sequence, batch, head) * params.schedule.q_tiles + q0 / BLOCK_M;
}

// ---- the gradient of the sinks: there are none ----------------------------------------------------------------------------
struct SinkSum {};

__device__ __forceinline__ SinkSum begin_sink() { return {}; }
__device__ __forceinline__ void add_to_sink(SinkSum &, const BackwardParams &, int, float, float) {}
__device__ __forceinline__ void end_sink(const SinkSum &, const BackwardParams &, const QueryTile &) {}
__device__ __forceinline__ void finish_sinks(const BackwardParams &) {}

// The key tile of a rank: the columns of mask blocks with most kept blocks come first, where the host has such an order.
// Query heads that share keys take that of the first.
__device__ __forceinline__ int key_tile_of_rank(const BackwardParams &params, int batch, int kv_head, int rank) {
  constexpr int TILES = MASK_COLS / BLOCK_N;
  const MaskLists &columns = params.visibility.columns;
  const int *const order = params.column_order.columns;
  if (!order) return rank;
  const long long list = batch * columns.batch_lists + kv_head * params.sequence.group * columns.head_lists;
  return order[list + rank / TILES] * TILES + rank % TILES;
}

// ---- a key tile and its place in the order ------------------------------------------------------------------------------
// Blocks start in the order of their number. The key tiles of an L2 section (a number of kv heads) run together. Inside it
// one tile of every head comes after the other, so that neighbours rarely add to the same dQ.
constexpr bool QUERIES_DESCEND = false;
constexpr bool SPREAD = false;

struct KeyTile {
  int batch, kv_head;
  int number;                // in the order of its head's tiles: the ticket with which it adds to dQ
  int k0;                    // its first key
  int begin;                 // SPREAD: first query of its first step
  WalkPart part;            // of its walk
  SequencePlace place;       // of its batch entry
};

// SPREAD: the first query of the first step of a head's key tile.
__device__ __forceinline__ int spread_begin(const Schedule &schedule, int number) {
  const long long spread = (long long)(schedule.k_tiles - 1 - number) * schedule.q_tiles;
  return SPREAD ? int(spread / schedule.k_tiles) * BLOCK_M : 0;
}

__device__ __forceinline__ unsigned count_key_tiles(const BackwardParams &params) {
  return unsigned(places_of_head(params)) * params.sequence.heads_kv * params.sequence.batch;
}

__device__ __forceinline__ KeyTile key_tile_at(const BackwardParams &params, unsigned place) {
  const Sequence &sequence = params.sequence;
  const Schedule &schedule = params.schedule;
  const unsigned section_blocks = unsigned(schedule.l2_section_heads) * places_of_head(params);
  const unsigned section = place / section_blocks;
  const unsigned first_head = section * schedule.l2_section_heads;
  const unsigned heads = min(unsigned(schedule.l2_section_heads), sequence.batch * sequence.heads_kv - first_head);
  const unsigned rest = place - section * section_blocks;
  const unsigned batch_head = first_head + rest % heads;
  KeyTile keys;
  keys.batch = batch_head / sequence.heads_kv;
  keys.kv_head = batch_head % sequence.heads_kv;
  int rank;
  keys.part = part_at(params, rest / heads, rank);
  keys.number = key_tile_of_rank(params, keys.batch, keys.kv_head, rank);
  keys.k0 = keys.number * BLOCK_N;
  keys.begin = spread_begin(schedule, keys.number);
  return keys;
}

__device__ __forceinline__ KeyTile find_key_tile(const BackwardParams &params) { return key_tile_at(params, blockIdx.x); }

// The ticket of the first key tile that adds to sum `sum` of a query tile.
__device__ __forceinline__ int first_ticket(const Sequence &sequence, const Visibility &visibility,
                                            const Schedule &schedule, int q_tile, int sum) {
  const long long next = q_tile + 1;
  if (SPREAD) {
    // To the first sum add the tiles that begin at this query tile or before it, where tile n begins at
    // floor((k_tiles - 1 - n) q_tiles / k_tiles).
    return sum == 0 ? schedule.k_tiles - int((next * schedule.k_tiles + schedule.q_tiles - 1) / schedule.q_tiles) : 0;
  }
  // The key tiles that its queries see. With none of them the ticket is not looked at.
  const int last_row = int(min(next * BLOCK_M, (long long)sequence.nq)) - 1;
  return key_tiles_seen<BLOCK_N>(sequence, visibility, q_tile * BLOCK_M, last_row).begin;
}

// A step of the walk over the query tiles that see some key of the tile, one head of the group after the other.
struct Step {
  int head;                  // within the group; the group's size: the walk is over
  int q0;                    // first query of the tile
  bool sees_whole;           // the score function is known to hide nothing of it
};

__device__ __forceinline__ bool is_over(const Sequence &sequence, const Step &step) {
  return step.head >= sequence.group;
}

__device__ __forceinline__ int query_head_of(const Sequence &sequence, const KeyTile &keys, const Step &step) {
  return keys.kv_head * sequence.group + step.head;
}

// The number of the step's query tile, over all heads.
__device__ __forceinline__ int tile_number(const BackwardParams &params, const KeyTile &keys, const Step &step) {
  return tile_number(params, keys.place, keys.batch, query_head_of(params.sequence, keys, step), step.q0);
}

// ---- dQ is made when the main kernel has ended -----------------------------------------------------------------------------
constexpr bool DQ_IS_EARLY = false;

__device__ __forceinline__ int section_of(const BackwardParams &, const KeyTile &) { return 0; }
__device__ __forceinline__ int section_of_block(const BackwardParams &) { return 0; }
__device__ __forceinline__ void say_added(const BackwardParams &, int, int) {}
__device__ __forceinline__ void clear_section_counts(const BackwardParams &) {}
__device__ __forceinline__ void wait_for_dq(const BackwardParams &) { wait_for_grid_before(); }

// The walk of a key tile over the queries: the kept blocks of its column of mask blocks, BLOCK_M queries at a time, as
// far as some of them sees a key of the tile.
constexpr int TILES_PER_MASK_BLOCK = MASK_ROWS / BLOCK_M;
static_assert(MASK_ROWS % BLOCK_M == 0 && MASK_COLS % BLOCK_N == 0, "a tile lies in one mask block");

struct QueryWalk {
  Step step;
  const int *blocks;         // kept row blocks of this head, from the one behind the step's on
  int next;                  // the first of them, read ahead so that no step waits for it
  int tiles;                 // of this head, from the step's on
  int left;                  // WALKS_ARE_DIVIDED: steps behind those of this head
};

// Tiles of a list that begin before a query. Rows ascend within a list.
__device__ __forceinline__ int tiles_before(const int *blocks, int count, int query, bool all_begin_before) {
  int entries = all_begin_before ? count : 0, beyond = count;
  while (entries < beyond) {
    const int middle = (entries + beyond) / 2;
    if (block_of(blocks[middle]) * MASK_ROWS < query) entries = middle + 1; else beyond = middle;
  }
  if (entries == 0) return 0;
  const int rows = query - block_of(blocks[entries - 1]) * MASK_ROWS;
  return (entries - 1) * TILES_PER_MASK_BLOCK + min(TILES_PER_MASK_BLOCK, (rows + BLOCK_M - 1) / BLOCK_M);
}

// The step's tile is number `tile` of the block of this entry.
__device__ __forceinline__ void enter_block(QueryWalk &walk, int entry, int tile) {
  walk.step.q0 = block_of(entry) * MASK_ROWS + tile * BLOCK_M;
  walk.step.sees_whole = is_seen_whole(entry);
  if (walk.tiles > TILES_PER_MASK_BLOCK - tile) walk.next = *walk.blocks;
}

// Goes to this head's tile number `skipped`, which must exist. If the head has no tiles, goes to the first tile of the next
// head that has some.
__device__ __forceinline__ void enter_head(const Sequence &sequence, const Visibility &visibility, const KeyTile &keys,
                                           QueryWalk &walk, int skipped) {
  const MaskLists &columns = visibility.columns;
  const int first = queries_seeing(sequence, visibility, keys.k0).begin;
  const int end = min(sequence.nq, queries_seeing(sequence, visibility, min(keys.k0 + BLOCK_N, sequence.nk) - 1).end);
  if (WALKS_ARE_DIVIDED && walk.left == 0) walk.step.head = sequence.group;
  for (; walk.step.head < sequence.group; ++walk.step.head) {
    const int head = query_head_of(sequence, keys, walk.step);
    const MaskList list = columns.lists[keys.batch * columns.batch_lists + head * columns.head_lists + keys.k0 / MASK_COLS];
    const int *const blocks = columns.blocks + list.start;
    const int place = (HIDES_LAST_KEYS ? tiles_before(blocks, list.count, first - BLOCK_M + 1, false) : 0) + skipped;
    walk.tiles = tiles_before(blocks, list.count, end, !HIDES_FIRST_KEYS) - place;
    if (walk.tiles <= 0) continue;
    if (WALKS_ARE_DIVIDED) {
      walk.tiles = min(walk.tiles, walk.left);
      walk.left -= walk.tiles;
    }
    walk.blocks = blocks + place / TILES_PER_MASK_BLOCK + 1;
    enter_block(walk, walk.blocks[-1], place % TILES_PER_MASK_BLOCK);
    return;
  }
}

__device__ __forceinline__ void enter_next_head(const Sequence &sequence, const Visibility &visibility, const KeyTile &keys,
                                                QueryWalk &walk) {
  ++walk.step.head;
  enter_head(sequence, visibility, keys, walk, 0);
}

// The key tile's part of this walk, from its first step on.
__device__ __forceinline__ QueryWalk part_of(const Sequence &sequence, const Visibility &visibility, const KeyTile &keys,
                                             const QueryWalk &whole) {
  int steps = 0;
  for (QueryWalk walk = whole; !is_over(sequence, walk.step); enter_next_head(sequence, visibility, keys, walk)) {
    steps += walk.tiles;
  }
  QueryWalk walk = whole;
  int skipped = begin_of_part(keys.part, steps);
  for (; !is_over(sequence, walk.step) && skipped >= walk.tiles; enter_next_head(sequence, visibility, keys, walk)) {
    skipped -= walk.tiles;
  }
  walk.left = end_of_part(keys.part, steps) - begin_of_part(keys.part, steps);
  enter_head(sequence, visibility, keys, walk, skipped);
  return walk;
}

__device__ __forceinline__ QueryWalk begin_walk(const Sequence &sequence, const Visibility &visibility,
                                                const KeyTile &keys) {
  QueryWalk walk = {};
  walk.left = 0x7fffffff;
  enter_head(sequence, visibility, keys, walk, 0);
  return is_whole(keys.part) ? walk : part_of(sequence, visibility, keys, walk);
}

__device__ __forceinline__ void advance(const Sequence &sequence, const Visibility &visibility, const KeyTile &keys,
                                        QueryWalk &walk) {
  if (--walk.tiles == 0) {
    enter_next_head(sequence, visibility, keys, walk);
    return;
  }
  walk.step.q0 += BLOCK_M;
  if (walk.step.q0 % MASK_ROWS == 0) {
    ++walk.blocks;
    enter_block(walk, walk.next, 0);
  }
}

// Whether few steps are left. Of a walk over some heads, only the last one's are counted.
__device__ __forceinline__ bool ends_soon(const Sequence &sequence, const QueryWalk &walk) {
  return walk.tiles <= 3 && (walk.step.head + 1 >= sequence.group || (WALKS_ARE_DIVIDED && walk.left == 0));
}

// ---- score of S^T, and its slope ---------------------------------------------------------------------------------
// No score function: S stays as it is, and the slope is 1.
constexpr bool HAS_SCORE = false;

using Argument = BackwardParams;
__device__ __forceinline__ const BackwardParams &params_of(const Argument &argument) { return argument; }

__device__ __forceinline__ void clear_captured(const Argument &) {}
__device__ __forceinline__ void finish_captured(const Argument &) {}

__device__ __forceinline__ unsigned anew(unsigned x) { return x; }

template <int M> struct ScoredKeys {};
template <int M, class Params> __device__ __forceinline__ ScoredKeys<M> begin_score(const Params &) { return {}; }

template <int M>
__device__ __forceinline__ void begin_step(ScoredKeys<M> &, const Sequence &, int, int, int, bool, int) {}

template <int M, int N>
__device__ __forceinline__ void apply_score(float (&)[M][N][4], ScoredKeys<M> &, int, int) {}

template <int M> __device__ __forceinline__ void weigh(unsigned (&)[M][FRAGMENT], const ScoredKeys<M> &, int) {}

template <int M> struct Slopes {};

template <int M, class MakeScores>
__device__ __forceinline__ Slopes<M> slopes_of(const ScoredKeys<M> &, int, int, MakeScores) { return {}; }

template <int M> __device__ __forceinline__ float by_slope(float ds, const Slopes<M> &, int, int, int) { return ds; }

template <int M> __device__ __forceinline__ void add_gradients(ScoredKeys<M> &, const Slopes<M> &, int, int) {}
template <int M> __device__ __forceinline__ void end_score(ScoredKeys<M> &, int) {}

// ---- dropout -----------------------------------------------------------------------------------
// The mask is a pure function of (seed, offset, batch, head, i, j), whatever the tiles: Philox4x32-10
// (Salmon et al., SC'11). One draw of four words r[0..3] serves the 64 elements of a 32x64 block that one lane
// holds as eight mma fragments, rows i, i + 8 and columns j, j + 1, j + 8, j + 9 of each 16x16 tile of it:
//   counter  = { offset.low, (j / 64) * 4 + j % 8 / 2, batch * heads_q + head, (i / 32) * 8 + i % 8 }
//   key      = { seed.low, seed.high ^ offset.high }
//   w        = (i / 8) % 2 + 2 * ((j / 8) % 2), the element's register in its fragment
//   fragment = (j / 16) % 4 + 4 * ((i / 16) % 2)
//   word     = r[w]                                                              in fragment 0,
//              r[w] ^ ror(r[(w + fragment) % 4], 8)                              in fragments 1, 2, 3,
//              r[w] ^ ror(r[(w + 1) % 4], 8) ^ ror(r[(w + 2) % 4], 20)           in fragment 4,
//              r[w] ^ ror(r[(w + fragment) % 4], 20)                             in fragments 5, 6, 7
//   half     = the low half of the word for even j, the high half for odd j
// An element is dropped when the low 14 bits of its half are below the threshold round(p 2^14). Any two elements
// of a draw are independent: the 28 bits that decide about them are linearly independent functions of the 128
// drawn (tests/test_dropout.c counts the ranks).
// What varies along the keys enters the first round by XOR alone, so that most of the first three rounds is
// the same for all keys or for all rows of a warp.
struct Seed {
  unsigned key[2], offset;
  unsigned threshold_pair;                   // the threshold in both halves
};

__device__ __forceinline__ u64 seed_of(const Dropout &arguments) {
  return arguments.seed_address ? *arguments.seed_address : arguments.seed;
}

__device__ __forceinline__ u64 offset_of(const Dropout &arguments) {
  return arguments.offset_address ? *arguments.offset_address : arguments.offset;
}

__device__ __forceinline__ Seed find_seed(const Dropout &arguments) {
  const u64 seed = seed_of(arguments), offset = offset_of(arguments);
  return {{uniform(static_cast<unsigned>(seed)),
           uniform(static_cast<unsigned>(seed >> 32) ^ static_cast<unsigned>(offset >> 32))},
          uniform(static_cast<unsigned>(offset)), arguments.threshold * 0x00010001u};
}

__device__ __forceinline__ void philox(unsigned (&r)[4], unsigned key0, unsigned key1) {
  #pragma unroll
  for (int round = 0; round < 10; ++round) {
    const unsigned long long a = 0xD2511F53ull * r[0];
    const unsigned long long b = 0xCD9E8D57ull * r[2];
    r[0] = static_cast<unsigned>(b >> 32) ^ r[1] ^ key0;
    r[1] = static_cast<unsigned>(b);
    r[2] = static_cast<unsigned>(a >> 32) ^ r[3] ^ key1;
    r[3] = static_cast<unsigned>(a);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}

__device__ __forceinline__ unsigned ror(unsigned x, int bits) { return __funnelshift_r(x, x, bits); }

// The word of Philox's counter that stands for batch entry and head.
__device__ __forceinline__ unsigned counter_head(const Dropout &arguments, int batch, int head) {
  return batch * arguments.heads + head + arguments.first_head;
}

// What remains of P is divided by the probability to be kept.
__device__ __forceinline__ float dropout_rescale(const Dropout &arguments) { return arguments.rescale; }

// ---- dropout of P^T ------------------------------------------------------------------------------------
// What parts/dropout_rows.cu.in draws for rows and columns of P, for lanes that hold P^T: of each 16x16 tile lane (g, t)
// has keys j = g, g + 8 and queries i = 2 t, 2 t + 1, 2 t + 8, 2 t + 9. The halves of its words are the same for all
// its keys, low for even g; queries 2 t and 2 t + 1 belong to different draws, which lanes (g, t) and (g ^ 1, t)
// both need: each makes one of them.
struct DropoutColumns {
  Seed seed;
  unsigned batch_head;                   // of the step
  unsigned lane;
  unsigned first_key, first_query;       // what the run's origin adds to the words of key and query
  unsigned ahead[DRAWS_AHEAD > 0 ? DRAWS_AHEAD : 1][4];  // draws for the next step, each for 32 queries
  unsigned plain[4], by_8[4], by_20[4];  // r, ror(r, 8), ror(r, 20): halves for 2 t (low), 2 t + 1 (high)
};

__device__ __forceinline__ DropoutColumns begin_dropout(const Dropout &arguments, int lane) {
  DropoutColumns dropout;
  dropout.seed = find_seed(arguments);
  dropout.batch_head = 0;
  dropout.lane = lane;
  dropout.first_key = arguments.first_key / 16;
  dropout.first_query = arguments.first_query / 4;
  return dropout;
}

__device__ __forceinline__ void begin_step(DropoutColumns &dropout, const Dropout &arguments, int batch, int head) {
  dropout.batch_head = counter_head(arguments, batch, head);
}

// What drawing computes of the seed alone is computed anew where this stands, not kept in registers until then.
__device__ __forceinline__ void pin_seed(DropoutColumns &dropout) {
  pin(dropout.seed.key[0]);
  pin(dropout.seed.key[1]);
  pin(dropout.seed.offset);
}

// This lane's part of the draw for the block of 64 keys and 32 queries that contains this key and query.
__device__ __forceinline__ void draw_own(unsigned (&random)[4], const DropoutColumns &dropout, int batch_head, int key,
                                         int query) {
  const unsigned lane = dropout.lane;
  random[0] = dropout.seed.offset;
  random[1] = dropout.first_key + key / 64 * 4 + lane / 8;
  random[2] = batch_head;
  random[3] = dropout.first_query + query / 32 * 8 + lane % 4 * 2 + lane / 4 % 2;
  philox(random, dropout.seed.key[0], dropout.seed.key[1]);
}

// Makes the DRAWS_AHEAD draws of a step before its P is there.
__device__ __forceinline__ void draw_ahead(DropoutColumns &dropout, const Dropout &arguments, int batch, int head, int key,
                                           int query) {
  const unsigned batch_head = counter_head(arguments, batch, head);
  #pragma unroll
  for (int i = 0; i < DRAWS_AHEAD; ++i) draw_own(dropout.ahead[i], dropout, batch_head, key, query + i * 32);
}

// Lanes exchange the halves of a draw, so that each has the bits of its own queries.
__device__ __forceinline__ void share_draw(DropoutColumns &dropout, const unsigned (&random)[4]) {
  const unsigned odd = dropout.lane / 4 % 2;
  #pragma unroll
  for (int w = 0; w < 4; ++w) {
    const unsigned own = random[w], other = __shfl_xor_sync(0xffffffffu, own, 4);
    dropout.plain[w] = prmt(own, other, odd ? 0x3276 : 0x5410);
    dropout.by_8[w] = prmt(own, other, odd ? 0x0347 : 0x6521);
    dropout.by_20[w] = prmt(ror(own, 4), ror(other, 4), odd ? 0x1054 : 0x7632);
  }
}

// A fragment of P^T, keys 16 COLUMN of 64, queries 16 row of 32: zeroes what is dropped in rP, and gives it a sign in
// `marked`, for those who compute dS.
template <int COLUMN>
__device__ __forceinline__ void drop_fragment(unsigned (&rP)[FRAGMENT], unsigned (&marked)[FRAGMENT], const DropoutColumns &dropout,
                                              int row) {
  #pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int w = i / 2 + i % 2 * 2;  // the element's register in a fragment of P
    unsigned word = dropout.plain[w];
    if (COLUMN == 0) {
      word ^= (dropout.by_8[(w + 1) % 4] ^ dropout.by_20[(w + 2) % 4]) & (row == 0 ? 0u : ~0u);
    } else {
      word ^= row == 0 ? dropout.by_8[(w + COLUMN) % 4] : dropout.by_20[(w + COLUMN) % 4];
    }
    const unsigned kept = halves_ge(word & 0x3FFF3FFFu, dropout.seed.threshold_pair);
    mark_pair(marked, rP, i, kept);
    keep_pair(rP, i, kept);
  }
}

// The k-th 16 queries of a part.
__device__ __forceinline__ void drop(unsigned (&rP)[M_TILES][FRAGMENT], unsigned (&marked)[M_TILES][FRAGMENT], DropoutColumns &dropout,
                                     int first_key, int first_query, int k) {
  if (DRAWS_AHEAD > 0) {
    if (k % 2 == 0) share_draw(dropout, dropout.ahead[k / 2]);
  } else if (PART_QUERIES % 32 != 0 || k % 2 == 0) {
    unsigned random[4];
    draw_own(random, dropout, dropout.batch_head, first_key, first_query + k * 16);
    share_draw(dropout, random);
  }
  const int row = PART_QUERIES % 32 == 0 ? k % 2 : first_query / 16 % 2;
  #pragma unroll
  for (int m = 0; m < M_TILES; ++m) {
    switch (WARP_KEYS == 64 ? m : (first_key / 16 + m) % 4) {
      case 0: drop_fragment<0>(rP[m], marked[m], dropout, row); break;
      case 1: drop_fragment<1>(rP[m], marked[m], dropout, row); break;
      case 2: drop_fragment<2>(rP[m], marked[m], dropout, row); break;
      default: drop_fragment<3>(rP[m], marked[m], dropout, row); break;
    }
  }
}

// P of what was marked.
__device__ __forceinline__ void unmark(unsigned (&r)[FRAGMENT]) { drop_marked(r); }

constexpr bool DP_BEGINS_AS_DELTA = false;  // delta is not multiplied by the factor of what was kept

// dS = P (dP - delta), where dP is 0 of what was dropped. The accumulators of dP begin as 0; delta is not loaded before
// the product is done, for which its registers are needed.
template <int M, int N, class Load>
__device__ __forceinline__ void begin_dp(float (&rDP)[M][N][4], float (&)[N][2], Load) {
  #pragma unroll
  for (int m = 0; m < M; ++m) {
    #pragma unroll
    for (int n = 0; n < N; ++n) rDP[m][n][0] = rDP[m][n][1] = rDP[m][n][2] = rDP[m][n][3] = 0.f;
  }
}

template <int N, class Load> __device__ __forceinline__ void end_dp(float (&minus_delta)[N][2], Load load_delta) {
  load_delta(minus_delta);
}

// p: marked where it was dropped.
__device__ __forceinline__ float ds_of(float p, float dp, float minus_delta, const Dropout &arguments) {
  const bool dropped = __float_as_int(p) < 0;
  return fabsf(p) * ((dropped ? 0.f : dp * arguments.rescale) + minus_delta);
}

__device__ __forceinline__ float ds_unit(const Dropout &) { return 1.f; }

// ---- tiles in shared memory --------------------------------------------------------------------------
// A tile is ROWS rows of CHUNKS chunks of 16 bytes. ldmatrix reads eight rows at once and they must fall into
// distinct banks: rows of whole 128 bytes are swizzled (chunk c of row r lies at c ^ r % 8), others are an odd
// number of chunks apart.
template <int STRIDE> __device__ __forceinline__ unsigned chunk_offset(int row, int chunk) {
  return row * STRIDE + (STRIDE % 128 == 0 ? chunk ^ row % 8 : chunk) * 16;
}

// From a lane's address of chunk pair 0 (0 or 1 behind the XOR) to the same lane's chunk pair `pair`.
template <int STRIDE> __device__ __forceinline__ unsigned chunk_pair(unsigned address, int pair) {
  return STRIDE % 128 == 0 ? (address ^ (pair % 4 * 32)) + pair / 4 * 128 : address + pair * 32;
}

// Global to shared memory, by COPIERS threads, of which this is number `thread`. A thread keeps to one column of chunks.
// Rows from `rows` on and chunks beyond the VALID first become zeros.
template <int ROWS, int CHUNKS, int VALID, int STRIDE, int COPIERS = THREADS>
__device__ __forceinline__ void copy_tile(unsigned to, const element *from, int row_stride, int rows,
                                          int thread = threadIdx.x) {
  constexpr int THREADS_PER_ROW = (CHUNKS & -CHUNKS) < 16 ? (CHUNKS & -CHUNKS) : 16;  // divides CHUNKS
  constexpr int ROWS_PER_PASS = COPIERS / THREADS_PER_ROW;
  const int row = thread / THREADS_PER_ROW;
  const int chunk = thread % THREADS_PER_ROW;
  const int rows_left = rows - row;
  from += (long long)row * row_stride + chunk * CHUNK;
  if (ROWS_PER_PASS % 8 == 0) to += chunk_offset<STRIDE>(row, chunk);  // the swizzle is that of all passes
  #pragma unroll
  for (int r = 0; r < ROWS; r += ROWS_PER_PASS) {
    const unsigned to_row = ROWS_PER_PASS % 8 == 0 ? to + r * STRIDE : to + chunk_offset<STRIDE>(row + r, chunk);
    if (ROWS % ROWS_PER_PASS == 0 || row < ROWS - r) {
      #pragma unroll
      for (int c = 0; c < CHUNKS; c += THREADS_PER_ROW) {
        copy_16(to_row + c * 16, from + c * CHUNK, r < rows_left && (CHUNKS == VALID || chunk < VALID - c));
      }
    }
    from += (long long)ROWS_PER_PASS * row_stride;
  }
}

// From shared to global memory: the first `rows` rows of a tile, in whole chunks, by `threads` threads together.
template <int ROWS, int CHUNKS, int STRIDE>
__device__ __forceinline__ void store_rows(element *to, long long row_stride, unsigned from, int rows, int thread,
                                           int threads) {
  #pragma unroll 4
  for (int c = thread; c < ROWS * CHUNKS; c += threads) {
    const int row = c / CHUNKS, chunk = c % CHUNKS;
    if (row < rows) {
      unsigned r[4];
      load_shared_16(r, from + chunk_offset<STRIDE>(row, chunk));
      store_global_16(to + row * row_stride + chunk * CHUNK, r);
    }
  }
}

// ---- accumulators of two products, 16 rows x 16 columns, on their way to memory ------------------------------------
// The lane's share of a row, rows g (h 0) or g + 8 (h 1): two pairs of columns.
struct Pair {
  int column;
  float first, second;
};

__device__ __forceinline__ Pair columns_of(const float (&c0)[4], const float (&c1)[4], int h, int pair, int lane) {
  const float *const c = (pair == 0 ? c0 : c1) + 2 * h;
  return {pair * 8 + lane % 4 * 2, c[0], c[1]};
}

// To the tile's row, the place-th 16 columns.
template <int STRIDE>
__device__ __forceinline__ void stage_row(unsigned tile, int row, int place, const float (&c0)[4], const float (&c1)[4], int h,
                                          float factor, int lane) {
  #pragma unroll
  for (int n = 0; n < 2; ++n) {
    const float *const c = (n == 0 ? c0 : c1) + 2 * h;
    store_shared_4(tile + chunk_offset<STRIDE>(row, 2 * place + n) + lane % 4 * 4, pack(c[0] * factor, c[1] * factor));
  }
}

// Where the rows lie of a product whose first operand was turned (load_turned).
__device__ __forceinline__ int turned_row(int h, int lane) { return lane / 4 + 8 * h; }

// ---- fragments from shared memory, and their products ---------------------------------------------------------------
// A lane's address of row lane % 16, chunk lane / 16 of four 8x8 matrices: as they stand, A fragments of 16 rows x 16
// columns; across, B fragments of 16 rows (the depth) x 16 columns.
template <int STRIDE> __device__ __forceinline__ unsigned rows_first(unsigned tile, int lane) {
  return tile + chunk_offset<STRIDE>(lane % 16, lane / 16);
}

// And with the two middle matrices swapped: as they stand, B fragments of 16 rows x 16 columns (the depth); turned,
// A fragments of 16 columns x 16 rows (the depth).
template <int STRIDE> __device__ __forceinline__ unsigned columns_first(unsigned tile, int lane) {
  return tile + chunk_offset<STRIDE>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
}

template <int STRIDE> __device__ __forceinline__ unsigned across(unsigned tile, int lane) {
  return rows_first<STRIDE>(tile, lane);
}

template <int STRIDE> __device__ __forceinline__ unsigned turned(unsigned tile, int lane) {
  return columns_first<STRIDE>(tile, lane);
}

// From a lane's address to that of the place-th 16 columns.
template <int STRIDE> __device__ __forceinline__ unsigned columns_at(unsigned address, int place) {
  return chunk_pair<STRIDE>(address, place);
}

// The k-th 16 columns from the lane's address on; offset: bytes of whole rows, a multiple of 8 of them.
template <int STRIDE>
__device__ __forceinline__ void load_fragment(unsigned (&r)[FRAGMENT], unsigned address, int k, int offset) {
  ldmatrix_x4(r, chunk_pair<STRIDE>(address, k) + offset);
}

template <int STRIDE>
__device__ __forceinline__ void load_across(unsigned (&r)[FRAGMENT], unsigned address, int place, int offset) {
  ldmatrix_x4_trans(r, chunk_pair<STRIDE>(address, place) + offset);
}

template <int STRIDE>
__device__ __forceinline__ void load_turned(unsigned (&r)[FRAGMENT], unsigned address, int place, int offset) {
  ldmatrix_x4_trans(r, chunk_pair<STRIDE>(address, place) + offset);
}

// c += A B for a 16x16 A and the n-th 8 columns of a 16x16 B, 16 deep.
__device__ __forceinline__ void multiply(float (&c)[4], const unsigned (&a)[FRAGMENT], const unsigned (&b)[FRAGMENT], int n) {
  mma_m16n8k16(c, a, b[2 * n], b[2 * n + 1]);
}

// ---- products, mma.sync fragments from shared memory ---------------------------------------------------
// Tiles of Q, K, V, dO have a row for each query or key; P and dS lie transposed, a row for each key.
// A fragments of M times 16 rows, the k-th 16 columns: from shared memory, by the lane's rows_first, or as they are.
template <int STRIDE, int M> __device__ __forceinline__ void load_rows(unsigned (&a)[M][FRAGMENT], unsigned rows, int k) {
  #pragma unroll
  for (int m = 0; m < M; ++m) load_fragment<STRIDE>(a[m], rows, k, m * 16 * STRIDE);
}

template <int STRIDE, int M, int DEPTH>
__device__ __forceinline__ void load_rows(unsigned (&a)[M][FRAGMENT], const unsigned (&rows)[DEPTH][M][FRAGMENT], int k) {
  #pragma unroll
  for (int m = 0; m < M; ++m) {
    #pragma unroll
    for (int i = 0; i < FRAGMENT; ++i) a[m][i] = rows[k][m][i];
  }
}

// S^T = K Q^T or dP^T = V dO^T, added to rS. sB: the lane's columns_first.
template <int DEPTH, int STRIDE, int M, int N, class Rows>
__device__ __forceinline__ void gemm_scores(float (&rS)[M][N][4], const Rows &rows, unsigned sB) {
  #pragma unroll
  for (int k = 0; k < DEPTH / 16; ++k) {
    unsigned a[M][FRAGMENT];
    load_rows<STRIDE>(a, rows, k);
    #pragma unroll
    for (int n = 0; n < N; n += 2) {
      unsigned b[FRAGMENT];
      load_fragment<STRIDE>(b, sB, k, n * 8 * STRIDE);
      #pragma unroll
      for (int m = 0; m < M; ++m) {
        multiply(rS[m][n], a[m], b, 0);
        multiply(rS[m][n + 1], a[m], b, 1);
      }
    }
  }
}

// Pairs of 8-column tiles are dealt out to WARPS_DEALT warps: whether there is an n-th one for this warp.
template <int COLUMNS, int WARPS_DEALT> __device__ __forceinline__ bool has_pair(int n, int column_warp) {
  constexpr int PAIRS = COLUMNS / 16;
  return (n + 1) * WARPS_DEALT <= PAIRS || n * WARPS_DEALT + column_warp < PAIRS;
}

// dV += P^T dO, dK += dS^T Q: rP holds A fragments. sB: the lane's address across, at this warp's first pair of columns.
template <int COLUMNS, int STRIDE, int WARPS_DEALT, int M, int TILES, int DEPTH>
__device__ __forceinline__ void gemm_sums(float (&rSum)[M][TILES][4], const unsigned (&rP)[DEPTH][M][FRAGMENT], unsigned sB,
                                          int column_warp) {
  #pragma unroll
  for (int k = 0; k < DEPTH; ++k) {
    #pragma unroll
    for (int n = 0; n < TILES / 2; ++n) {
      if (!has_pair<COLUMNS, WARPS_DEALT>(n, column_warp)) continue;
      unsigned b[FRAGMENT];
      load_across<STRIDE>(b, sB, n * WARPS_DEALT, k * 16 * STRIDE);
      #pragma unroll
      for (int m = 0; m < M; ++m) {
        multiply(rSum[m][2 * n], rP[k][m], b, 0);
        multiply(rSum[m][2 * n + 1], rP[k][m], b, 1);
      }
    }
  }
}

// This warp's rows of K or V, read from shared memory at every step.
typedef unsigned Rows;

__device__ __forceinline__ void keep_rows(Rows &kept, unsigned rows, bool, bool) { kept = rows; }

// Of P or dS: 16 keys from the tile's row on, the place-th 16 queries.
__device__ __forceinline__ void load_pairs(unsigned (&r)[FRAGMENT], unsigned row, int place, int lane) {
  ldmatrix_x4(r, chunk_pair<P_STRIDE>(rows_first<P_STRIDE>(row, lane), place));
}

__device__ __forceinline__ void store_pairs(const unsigned (&r)[FRAGMENT], unsigned row, int place, int lane) {
  #pragma unroll
  for (int i = 0; i < 4; ++i) {
    store_shared_4(row + chunk_offset<P_STRIDE>(lane / 4 + i % 2 * 8, 2 * place + i / 2) + lane % 4 * 4, r[i]);
  }
}

// ---- roles -------------------------------------------------------------------------------------------
// Half of the warps make S^T and sum dV up, the other half make dP^T and sum dK up, a warp of each for the same keys
// and queries. P goes from the one to the other through shared memory, in the fragments that both hold. In that way a warp
// has registers for the sums of twice as many keys, and reads half as much of Q and dO.
struct Warp {
  int lane;
  bool sums_values;          // dV, not dK
  int key_warp, column_warp; // which keys, which columns of the sum
};

__device__ __forceinline__ Warp find_warp() {
  const int number = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int in_role = number % (WARPS / 2);
  return {lane, number < WARPS / 2, in_role / COLUMN_WARPS, in_role % COLUMN_WARPS};
}

// Named barriers. P of a part is there.
__device__ __forceinline__ int p_barrier(const Warp &warp, int part) {
  return 1 + part * KEY_WARPS + warp.key_warp;
}

// Among warps of one role with the same keys: their P or dS is there.
__device__ __forceinline__ int role_barrier(const Warp &warp, int part) {
  return 1 + ((warp.sums_values ? 1 : 2) * PARTS + part) * KEY_WARPS + warp.key_warp;
}

// The part's first query that this warp makes scores of, within the step.
__device__ __forceinline__ int part_query(const Warp &warp, int part) {
  return (part * COLUMN_WARPS + warp.column_warp) * PART_QUERIES;
}

// LSE (HALF 0) or -delta (HALF 1) of this lane's queries of each tile.
template <int HALF>
__device__ __forceinline__ void load_statistics(float (&row)[N_TILES][2], unsigned sStats, int first_query, int lane) {
  #pragma unroll
  for (int n = 0; n < N_TILES; ++n) {
    load_shared_8(row[n], sStats + (HALF * BLOCK_M + first_query + n * 8 + lane % 4 * 2) * 4);
  }
}

// P^T = exp(S^T - LSE) as A fragments of the product with dO.
__device__ __forceinline__ void exponentiate(unsigned (&rP)[N_TILES / 2][M_TILES][FRAGMENT],
                                             const float (&rS)[M_TILES][N_TILES][4],
                                             const float (&lse)[N_TILES][2], float scale_log2) {
  #pragma unroll
  for (int k = 0; k < N_TILES / 2; ++k) {
    #pragma unroll
    for (int m = 0; m < M_TILES; ++m) {
      #pragma unroll
      for (int i = 0; i < 4; ++i) {  // pair i: keys g + 8 (i % 2), queries 8 (i / 2) + 2 t
        const float *s = rS[m][2 * k + i / 2] + 2 * (i % 2), *l = lse[2 * k + i / 2];
        set_pair(rP[k][m], i, ex2(s[0] * scale_log2 - l[0]), ex2(s[1] * scale_log2 - l[1]));
      }
    }
  }
}

// What one part of a step works on.
struct Part {
  unsigned sQ, sdO, sStats;  // this step's Q, dO, LSE and delta
  unsigned sK, sP, sdS;      // this warp's first key of K, P, dS
  int number;
  bool is_full;              // all queries of the step see all keys of the tile
  int first_key, first_query;  // of the warp
};

// dV += P^T dO
__device__ __forceinline__ void sum_values(float (&rSum)[M_TILES][SUM_TILES][4], const BackwardParams &params,
                                           const Warp &warp, const Part &part, DropoutColumns &dropout,
                                           ScoredKeys<M_TILES> &score, const Rows &rowsK) {
  const int query = part_query(warp, part.number);
  float rS[M_TILES][N_TILES][4] = {};
  gemm_scores<D_PAD, QK_STRIDE>(rS, rowsK, columns_first<QK_STRIDE>(part.sQ + query * QK_STRIDE, warp.lane));
  apply_score(rS, score, part.first_query, warp.lane);
  if (!part.is_full) {
    hide_transposed(rS, params.sequence, params.visibility, part.first_key, part.first_query, warp.lane);
  }

  float lse[N_TILES][2];
  load_statistics<0>(lse, part.sStats, query, warp.lane);
  unsigned rP[N_TILES / 2][M_TILES][FRAGMENT];
  exponentiate(rP, rS, lse, params.softmax.scale_log2);
  #pragma unroll
  for (int k = 0; k < N_TILES / 2; ++k) {
    unsigned marked[M_TILES][FRAGMENT];  // P, negative where it was dropped
    drop(rP[k], marked, dropout, part.first_key, part.first_query, k);
    #pragma unroll
    for (int m = 0; m < M_TILES; ++m) {
      store_pairs(marked[m], part.sP + m * 16 * P_STRIDE, query / 16 + k, warp.lane);
    }
  }
  barrier_arrive(p_barrier(warp, part.number), 64 * COLUMN_WARPS);

  const int first = part.number * COLUMN_WARPS * PART_QUERIES;
  const unsigned sdO = columns_at<V_STRIDE>(across<V_STRIDE>(part.sdO + first * V_STRIDE, warp.lane), warp.column_warp);
  if (COLUMN_WARPS == 1) {
    gemm_sums<DV_PAD, V_STRIDE, COLUMN_WARPS>(rSum, rP, sdO, 0);
    return;
  }
  barrier_sync(role_barrier(warp, part.number), 32 * COLUMN_WARPS);
  #pragma unroll
  for (int k = 0; k < COLUMN_WARPS * N_TILES / 2; ++k) {
    unsigned r[1][M_TILES][FRAGMENT];
    #pragma unroll
    for (int m = 0; m < M_TILES; ++m) {
      load_pairs(r[0][m], part.sP + m * 16 * P_STRIDE, first / 16 + k, warp.lane);
      unmark(r[0][m]);
    }
    gemm_sums<DV_PAD, V_STRIDE, COLUMN_WARPS>(rSum, r, sdO + k * 16 * V_STRIDE, warp.column_warp);
  }
}

// dS = P o (dP - delta), times the slope of the score, and dK += dS^T Q.
__device__ __forceinline__ void sum_keys(float (&rSum)[M_TILES][SUM_TILES][4], const BackwardParams &params,
                                         const Warp &warp, const Part &part, ScoredKeys<M_TILES> &score,
                                         const Rows &rowsV) {
  const int query = part_query(warp, part.number);
  auto load_delta = [&](float (&minus_delta)[N_TILES][2]) { load_statistics<1>(minus_delta, part.sStats, query, warp.lane); };
  float rdP[M_TILES][N_TILES][4], minus_delta[N_TILES][2];
  begin_dp(rdP, minus_delta, load_delta);
  gemm_scores<DV_PAD, V_STRIDE>(rdP, rowsV, columns_first<V_STRIDE>(part.sdO + query * V_STRIDE, warp.lane));
  end_dp(minus_delta, load_delta);
  barrier_sync(p_barrier(warp, part.number), 64 * COLUMN_WARPS);
  unsigned rdS[N_TILES / 2][M_TILES][FRAGMENT];
  #pragma unroll
  for (int k = 0; k < N_TILES / 2; ++k) {
    auto make_scores = [&](float (&rS)[M_TILES][2][4]) {
      gemm_scores<D_PAD, QK_STRIDE>(rS, rows_first<QK_STRIDE>(part.sK, warp.lane),
                                    columns_first<QK_STRIDE>(part.sQ + (query + k * 16) * QK_STRIDE, warp.lane));
    };
    const Slopes<M_TILES> slopes = slopes_of(score, part.first_query + k * 16, warp.lane, make_scores);
    #pragma unroll
    for (int m = 0; m < M_TILES; ++m) {
      unsigned rP[FRAGMENT];
      load_pairs(rP, part.sP + m * 16 * P_STRIDE, query / 16 + k, warp.lane);
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float *dp = rdP[m][2 * k + i / 2] + 2 * (i % 2), *d = minus_delta[2 * k + i / 2];
        const int c = 2 * (i % 2);
        set_pair(rdS[k][m], i, by_slope(ds_of(first_of(rP, i), dp[0], d[0], params.dropout), slopes, m, i / 2, c),
                 by_slope(ds_of(second_of(rP, i), dp[1], d[1], params.dropout), slopes, m, i / 2, c + 1));
      }
      store_pairs(rdS[k][m], part.sdS + m * 16 * P_STRIDE, query / 16 + k, warp.lane);
    }
    add_gradients(score, slopes, part.first_query + k * 16, warp.lane);
  }

  const int first = part.number * COLUMN_WARPS * PART_QUERIES;
  const unsigned sQ = columns_at<QK_STRIDE>(across<QK_STRIDE>(part.sQ + first * QK_STRIDE, warp.lane), warp.column_warp);
  if (COLUMN_WARPS == 1) {
    gemm_sums<D_PAD, QK_STRIDE, COLUMN_WARPS>(rSum, rdS, sQ, 0);
    return;
  }
  barrier_sync(role_barrier(warp, part.number), 32 * COLUMN_WARPS);
  #pragma unroll
  for (int k = 0; k < COLUMN_WARPS * N_TILES / 2; ++k) {
    unsigned r[1][M_TILES][FRAGMENT];
    #pragma unroll
    for (int m = 0; m < M_TILES; ++m) load_pairs(r[0][m], part.sdS + m * 16 * P_STRIDE, first / 16 + k, warp.lane);
    gemm_sums<D_PAD, QK_STRIDE, COLUMN_WARPS>(rSum, r, sQ + k * 16 * QK_STRIDE, warp.column_warp);
  }
}

// Key tiles add to dQ as they come.
__device__ __forceinline__ void wait_for_ticket(const BackwardParams &, int, int, bool) {}
__device__ __forceinline__ void pass_ticket(const BackwardParams &, int, int, int, bool &) {}
__device__ __forceinline__ void set_first_tickets(const BackwardParams &, const QueryTile &) {}

// ---- how rows of dQ leave the registers: through shared memory, so that global stores are whole rows of 16-byte chunks -------
// 16 columns, the pair-th such, of a row of the tile: h says which of the lane's two.
__device__ __forceinline__ void put_dq(const BackwardParams &params, const QueryTile &, unsigned sdQ, int, int row, int pair,
                                       const float (&low)[4], const float (&high)[4], int h, int lane) {
  stage_row<QK_STRIDE>(sdQ, row, pair, low, high, h, params.softmax.scale * ds_unit(params.dropout), lane);
}

// When all rows of the tile are put, whose first one is q0.
__device__ __forceinline__ void end_dq(const BackwardParams &params, const QueryTile &tile, unsigned sdQ, int q0) {
  __syncthreads();
  store_rows<BLOCK_M, HEAD_DIM / CHUNK, QK_STRIDE>(row_of(params.dq, tile.batch, tile.head, q0), params.dq.stride.row, sdQ,
                                               params.sequence.nq - q0, threadIdx.x, DQ_THREADS);
}

// No walk is divided: there are no sums of parts.
constexpr int VALUE_SUMS = 0;

template <int N>
__device__ __forceinline__ void store_part(const BackwardParams &, const KeyTile &, int, const float (&)[N][4], int, int) {}
__device__ __forceinline__ void clear_part(const BackwardParams &, const KeyTile &, int, int) {}
__device__ __forceinline__ bool add_parts(const BackwardParams &) { return false; }

// ---- sums of dQ over the key tiles, in fp32 ----------------------------------------------------------------
// The number of the sum that the step adds its dQ to, of DQ_SUMS for each query tile.
__device__ __forceinline__ int sum_number(const BackwardParams &params, const KeyTile &keys, const Step &step) {
  const int tile = tile_number(params, keys, step);
  return SPREAD ? tile * 2 + (step.q0 < keys.begin) : tile;
}

// dq_sum holds a tile as blocks of 16 queries x 16 columns, each as the accumulators of two 16x8 products.
__device__ __forceinline__ void add_product(float *gSum, const float (&rdQ)[4], int lane) {
  #pragma unroll
  for (int i = 0; i < 4; ++i) red_add(gSum + i * 32 + lane, rdQ[i]);
}

__device__ __forceinline__ void load_product(float (&rdQ)[4], const float *gSum, int lane) {
  #pragma unroll
  for (int i = 0; i < 4; ++i) rdQ[i] = gSum[i * 32 + lane];
}

__device__ __forceinline__ int product_offset(int row_block, int pair, int half) {
  return ((row_block * (D_PAD / 16) + pair) * 2 + half) * 128;
}

// By the first kernel.
__device__ __forceinline__ void clear_dq(const BackwardParams &params, const QueryTile &tile) {
  const unsigned zeros[4] = {0, 0, 0, 0};
  float *const gSum = params.dq_sum + (long long)tile.of_all * (DQ_SUMS * BLOCK_M * D_PAD);
  #pragma unroll 4
  for (int i = threadIdx.x; i < DQ_SUMS * BLOCK_M * D_PAD / 4; i += PREPARE_THREADS) {
    store_global_16(reinterpret_cast<element *>(gSum + 4 * i), zeros);
  }
}

// ---- the last kernel: dQ from the sums ---------------------------------------------------------------------------------------
extern "C" __global__ void __launch_bounds__(DQ_THREADS)
fatune_convert(const __grid_constant__ Argument argument) {
  const BackwardParams &all = params_of(argument);
  wait_for_dq(all);
  finish_captured(argument);
  finish_sinks(all);
  if (add_parts(all)) return;
  extern __shared__ __align__(128) unsigned char shared[];
  const unsigned sdQ = shared_address(shared);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const QueryTile tile = find_query_tile<DQ_IS_EARLY>(all);
  const auto &params = at_place(all, tile.place);
  const int q0 = tile.number * BLOCK_M;
  if (q0 >= params.sequence.nq) return;

  const float *const gSum = params.dq_sum + (long long)tile.of_all * (DQ_SUMS * BLOCK_M * D_PAD);
  constexpr int PAIRS = D_PAD / 16;
  #pragma unroll 4
  for (int block = warp; block < BLOCK_M / 16 * PAIRS; block += DQ_THREADS / 32) {
    const int row = block / PAIRS * 16, pair = block % PAIRS;
    float rdQ[2][4];
    #pragma unroll
    for (int half = 0; half < 2; ++half) {
      load_product(rdQ[half], gSum + product_offset(row / 16, pair, half), lane);
      if (DQ_SUMS == 2) {
        float rOther[4];
        load_product(rOther, gSum + BLOCK_M * D_PAD + product_offset(row / 16, pair, half), lane);
        #pragma unroll
        for (int i = 0; i < 4; ++i) rdQ[half][i] += rOther[i];
      }
    }
    #pragma unroll
    for (int h = 0; h < 2; ++h) put_dq(params, tile, sdQ, q0, row + turned_row(h, lane), pair, rdQ[0], rdQ[1], h, lane);
  }
  end_dq(params, tile, sdQ, q0);
}

// ---- dQ = scale dS K, summed over the key tiles in fp32 ---------------------------------------------------
constexpr int DQ_ROWS = 16;   // queries whose dQ one warp computes,
constexpr int DQ_COLUMN_WARPS = WARPS / (BLOCK_M / DQ_ROWS);  // together with so many others

// To a sum, a warp's share of its tile: DQ_ROWS queries, and every DQ_COLUMN_WARPS-th pair of columns. ticket, ahead and
// ticket_seen are those of wait_for_ticket and pass_ticket.
__device__ __forceinline__ void add_dq(const BackwardParams &params, int sum, int ticket, unsigned sdS, unsigned sK,
                                       int ahead, bool &ticket_seen) {
  constexpr int PAIRS = D_PAD / 16;
  constexpr int PAIRS_OF_WARP = (PAIRS + DQ_COLUMN_WARPS - 1) / DQ_COLUMN_WARPS;
  constexpr int DQ_M_TILES = DQ_ROWS / 16;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first_row = warp / DQ_COLUMN_WARPS * DQ_M_TILES, first_pair = warp % DQ_COLUMN_WARPS;
  sdS = columns_at<P_STRIDE>(turned<P_STRIDE>(sdS, lane), first_row);
  sK = columns_at<QK_STRIDE>(across<QK_STRIDE>(sK, lane), first_pair);

  float rdQ[DQ_M_TILES][2 * PAIRS_OF_WARP][4] = {};
  #pragma unroll
  for (int k = 0; k < BLOCK_N / 16; ++k) {
    unsigned rdS[DQ_M_TILES][FRAGMENT];
    #pragma unroll
    for (int m = 0; m < DQ_M_TILES; ++m) {
      load_turned<P_STRIDE>(rdS[m], sdS, m, k * 16 * P_STRIDE);
    }
    #pragma unroll
    for (int n = 0; n < PAIRS_OF_WARP; ++n) {
      if (PAIRS % DQ_COLUMN_WARPS != 0 && n * DQ_COLUMN_WARPS + first_pair >= PAIRS) continue;
      unsigned rK[FRAGMENT];
      load_across<QK_STRIDE>(rK, sK, n * DQ_COLUMN_WARPS, k * 16 * QK_STRIDE);
      #pragma unroll
      for (int m = 0; m < DQ_M_TILES; ++m) {
        multiply(rdQ[m][2 * n], rdS[m], rK, 0);
        multiply(rdQ[m][2 * n + 1], rdS[m], rK, 1);
      }
    }
  }

  wait_for_ticket(params, sum, ticket, ticket_seen);
  float *const gSum = params.dq_sum + (long long)sum * (BLOCK_M * D_PAD);
  #pragma unroll
  for (int m = 0; m < DQ_M_TILES; ++m) {
    #pragma unroll
    for (int n = 0; n < PAIRS_OF_WARP; ++n) {
      const int pair = n * DQ_COLUMN_WARPS + first_pair;
      if (PAIRS % DQ_COLUMN_WARPS != 0 && pair >= PAIRS) continue;
      add_product(gSum + product_offset(first_row + m, pair, 0), rdQ[m][2 * n], lane);
      add_product(gSum + product_offset(first_row + m, pair, 1), rdQ[m][2 * n + 1], lane);
    }
  }
  pass_ticket(params, sum, ticket, ahead, ticket_seen);
}

// ---- the first kernel: LSE log2(e) and -delta = dLSE - rowsum(dO o O); zeros to add dQ to -------------------------------
// Rows that see nothing, and those from nq on, get LSE = +inf: all their P are 0.
extern "C" __global__ void __launch_bounds__(PREPARE_THREADS)
fatune_prepare(const __grid_constant__ Argument argument) {
  next_grid_may_begin();
  const BackwardParams &all = params_of(argument);
  constexpr int CHUNKS = HEAD_DIM_V / CHUNK;
  constexpr int LANES = CHUNKS <= 2 ? 2 : CHUNKS <= 4 ? 4 : CHUNKS <= 8 ? 8 : CHUNKS <= 16 ? 16 : 32;  // of a row
  const QueryTile tile = find_query_tile(all);
  const auto &params = at_place(all, tile.place);
  const Sequence &sequence = params.sequence;
  const int batch = tile.batch, head = tile.head, q0 = tile.number * BLOCK_M;
  const int chunk = threadIdx.x % LANES;
  const element *const gO = row_of(params.o, batch, head, 0) + chunk * CHUNK;
  const element *const gdO = row_of(params.dout, batch, head, 0) + chunk * CHUNK;
  float *const gStats = params.row_stats + (long long)tile.of_all * (2 * BLOCK_M);
  clear_dq(params, tile);
  clear_captured(argument);
  SinkSum sink = begin_sink();
  if (all.tiles_taken && blockIdx.x == 0 && threadIdx.x == 0) *all.tiles_taken = 0;
  if (blockIdx.x == 0) clear_section_counts(all);

  #pragma unroll
  for (int first = 0; first < BLOCK_M; first += PREPARE_THREADS / LANES) {
    const int row = first + threadIdx.x / LANES, i = q0 + row;
    const bool exists = row < BLOCK_M && i < sequence.nq;
    const long long number = lse_index(params, batch, head, i);
    const float lse = exists ? params.lse[number] : MINUS_INFINITY;
    float delta = exists && chunk == 0 && params.dlse ? -params.dlse[number] : 0.f;
    #pragma unroll
    for (int c = 0; c < CHUNKS; c += LANES) {
      if (exists && chunk < CHUNKS - c) {
        unsigned o[4], dout[4];
        load_global_16(o, gO + i * params.o.stride.row + c * CHUNK);
        load_global_16(dout, gdO + i * params.dout.stride.row + c * CHUNK);
        delta += dot_chunks(o, dout);
      }
    }
    #pragma unroll
    for (int lanes = LANES / 2; lanes > 0; lanes /= 2) delta += __shfl_xor_sync(0xffffffffu, delta, lanes);
    if (chunk == 0 && row < BLOCK_M) {
      gStats[row] = lse == MINUS_INFINITY ? -MINUS_INFINITY : lse * 1.44269504f;
      gStats[BLOCK_M + row] = lse == MINUS_INFINITY ? 0.f : -delta / ds_unit(params.dropout);
      add_to_sink(sink, params, head, lse, -delta);
    }
  }
  end_sink(sink, params, tile);
  set_first_tickets(params, tile);
}

// ---- the end: dV and dK ------------------------------------------------------------------------------
// Through shared memory, where V and K were, so that global stores are whole rows of 16-byte chunks.
template <int COLUMNS, int STRIDE>
__device__ __forceinline__ void stage_sums(unsigned tile, const float (&rSum)[M_TILES][SUM_TILES][4], float factor,
                                           const Warp &warp) {
  #pragma unroll
  for (int n = 0; n < SUM_TILES / 2; ++n) {
    if (!has_pair<COLUMNS, COLUMN_WARPS>(n, warp.column_warp)) continue;
    #pragma unroll
    for (int m = 0; m < M_TILES; ++m) {
      #pragma unroll
      for (int h = 0; h < 2; ++h) {  // keys g or g + 8
        const int row = warp.key_warp * WARP_KEYS + m * 16 + h * 8 + warp.lane / 4;
        stage_row<STRIDE>(tile, row, n * COLUMN_WARPS + warp.column_warp, rSum[m][2 * n], rSum[m][2 * n + 1], h, factor,
                          warp.lane);
      }
    }
  }
}

__device__ __forceinline__ void finish(const BackwardParams &params, const KeyTile &keys, unsigned smem,
                                       const Warp &warp, const float (&rSum)[M_TILES][SUM_TILES][4]) {
  wait_copies<0>();
  __syncthreads();  // K and V are no longer needed
  if (warp.sums_values) {
    stage_sums<DV_PAD, V_STRIDE>(smem + SMEM_V, rSum, dropout_rescale(params.dropout), warp);
  } else {
    stage_sums<D_PAD, QK_STRIDE>(smem + SMEM_K, rSum, params.softmax.scale, warp);
  }
  __syncthreads();
  const int thread = threadIdx.x % (THREADS / 2), rows = params.sequence.nk - keys.k0;
  if (warp.sums_values) {
    store_rows<BLOCK_N, HEAD_DIM_V / CHUNK, V_STRIDE>(row_of(params.dv, keys.batch, keys.kv_head, keys.k0),
                                                  params.dv.stride.row, smem + SMEM_V, rows, thread, THREADS / 2);
  } else {
    store_rows<BLOCK_N, HEAD_DIM / CHUNK, QK_STRIDE>(row_of(params.dk, keys.batch, keys.kv_head, keys.k0),
                                                 params.dk.stride.row, smem + SMEM_K, rows, thread, THREADS / 2);
  }
}

// ---- a step: what it loads, what it works on ---------------------------------------------------------------
__device__ __forceinline__ void load_keys(const BackwardParams &params, const KeyTile &keys, unsigned smem) {
  const int rows = params.sequence.nk - keys.k0;
  copy_tile<BLOCK_N, D_PAD / CHUNK, HEAD_DIM / CHUNK, QK_STRIDE>(
      smem + SMEM_K, row_of(params.k, keys.batch, keys.kv_head, keys.k0), int(params.k.stride.row), rows);
  copy_tile<BLOCK_N, DV_PAD / CHUNK, HEAD_DIM_V / CHUNK, V_STRIDE>(
      smem + SMEM_V, row_of(params.v, keys.batch, keys.kv_head, keys.k0), int(params.v.stride.row), rows);
}

// With two stages Q, dO, LSE and delta of a step ahead are loaded by the warps that wait for P, beside the first product
// of the others.
constexpr int LOADERS = STAGES == 2 ? THREADS / 2 : THREADS;

// By the last LOADERS threads of the block.
__device__ __forceinline__ void load_step(const BackwardParams &params, const KeyTile &keys, const Step &step,
                                          unsigned smem, int stage) {
  const int head = query_head_of(params.sequence, keys, step), rows = params.sequence.nq - step.q0;
  const element *gQ = row_of(params.q, keys.batch, head, step.q0);
  const element *gdO = row_of(params.dout, keys.batch, head, step.q0);
  const int tile = tile_number(params, keys, step);
  const float *gStats = params.row_stats + (long long)tile * (2 * BLOCK_M);
  const unsigned sQ = smem + SMEM_Q + stage * Q_STAGE, sdO = smem + SMEM_DO + stage * DO_STAGE;
  const unsigned sStats = smem + SMEM_STATS + stage * STATS_STAGE;
  const int thread = threadIdx.x - (THREADS - LOADERS);
  copy_tile<BLOCK_M, D_PAD / CHUNK, HEAD_DIM / CHUNK, QK_STRIDE, LOADERS>(sQ, gQ, int(params.q.stride.row), rows, thread);
  copy_tile<BLOCK_M, DV_PAD / CHUNK, HEAD_DIM_V / CHUNK, V_STRIDE, LOADERS>(sdO, gdO, int(params.dout.stride.row), rows, thread);
  for (int c = thread; c < STATS_STAGE / 16; c += LOADERS) {
    copy_16(sStats + c * 16, reinterpret_cast<const element *>(gStats + c * 4), true);
  }
}

// The step before, whose dS is there and whose dQ is due.
struct Due {
  int sum;                   // to add it to; -1: there was none
  int buffer;                // which of the two tiles of dS is not its own
  bool ticket_seen;          // see wait_for_ticket
};

// `ahead` is the sum that is due next.
__device__ __forceinline__ void add_due(const BackwardParams &params, const KeyTile &keys, unsigned smem, Due &due,
                                        int ahead) {
  if (due.sum < 0) return;
  add_dq(params, due.sum, keys.number, smem + SMEM_DS + (due.buffer ^ 1) * P_TILE, smem + SMEM_K, ahead,
         due.ticket_seen);
}

// What a thread keeps from step to step.
struct Worker {
  Warp warp;
  Rows rows;                 // of K or V
  DropoutColumns dropout;
  ScoredKeys<M_TILES> score;
  Due due;                   // DEFERRED_DQ
  float rSum[M_TILES][SUM_TILES][4];  // dV or dK
};

__device__ __forceinline__ void begin(Worker &worker, const Argument &argument, unsigned smem, bool no_step) {
  const Warp warp = worker.warp = find_warp();
  const int row = warp.key_warp * WARP_KEYS;
  const unsigned rows = warp.sums_values ? rows_first<QK_STRIDE>(smem + SMEM_K + row * QK_STRIDE, warp.lane)
                                         : rows_first<V_STRIDE>(smem + SMEM_V + row * V_STRIDE, warp.lane);
  keep_rows(worker.rows, rows, warp.sums_values, no_step);
  worker.dropout = begin_dropout(params_of(argument).dropout, warp.lane);
  worker.score = begin_score<M_TILES>(argument);
  worker.due = {-1, 0, false};
  #pragma unroll
  for (int m = 0; m < M_TILES; ++m) {
    #pragma unroll
    for (int n = 0; n < SUM_TILES; ++n) {
      #pragma unroll
      for (int i = 0; i < 4; ++i) worker.rSum[m][n][i] = 0.f;
    }
  }
}

// ahead: the step after this one, which is loaded beside it where there are two stages.
__device__ __forceinline__ void take_step(Worker &worker, const BackwardParams &params, const KeyTile &keys,
                                          const Step &step, const Step &ahead, unsigned smem, int stage) {
  const Warp warp = worker.warp;
  const int row = warp.key_warp * WARP_KEYS;
  Part part;
  part.sQ = smem + SMEM_Q + stage * Q_STAGE;
  part.sdO = smem + SMEM_DO + stage * DO_STAGE;
  part.sStats = smem + SMEM_STATS + stage * STATS_STAGE;
  part.sK = smem + SMEM_K + row * QK_STRIDE;
  part.sP = smem + SMEM_P + row * P_STRIDE;
  part.sdS = smem + SMEM_DS + (DEFERRED_DQ ? worker.due.buffer * P_TILE : 0) + row * P_STRIDE;
  part.is_full = is_full(params.sequence, params.visibility, step.q0, step.q0 + BLOCK_M - 1, keys.k0, BLOCK_N);
  part.first_key = keys.k0 + row;
  begin_step(worker.dropout, params.dropout, keys.batch, query_head_of(params.sequence, keys, step));
  begin_step(worker.score, params.sequence, keys.batch, query_head_of(params.sequence, keys, step), part.first_key,
             step.sees_whole, warp.lane);
  if (STAGES == 2 && !warp.sums_values && !is_over(params.sequence, ahead)) {
    load_step(params, keys, ahead, smem, stage ^ 1);
    commit_copies();
  }
  const int sum = sum_number(params, keys, step);
  // The warps that have to wait for P do their share of the dQ that is due before, the others after.
  if (DEFERRED_DQ && !warp.sums_values) add_due(params, keys, smem, worker.due, sum);
  #pragma unroll
  for (int p = 0; p < PARTS; ++p) {
    part.number = p;
    part.first_query = step.q0 + part_query(warp, p);
    if (warp.sums_values) {
      sum_values(worker.rSum, params, warp, part, worker.dropout, worker.score, worker.rows);
    } else {
      sum_keys(worker.rSum, params, warp, part, worker.score, worker.rows);
    }
  }
  if (DEFERRED_DQ) {
    if (warp.sums_values) add_due(params, keys, smem, worker.due, sum);
    worker.due.sum = sum;
    worker.due.buffer ^= 1;
  } else if (ADDS_DQ) {
    __syncthreads();         // dS is there
    bool ticket_seen = false;
    add_dq(params, sum, keys.number, smem + SMEM_DS, smem + SMEM_K, -1, ticket_seen);
  }
}

// ---- the kernel ----------------------------------------------------------------------------------
extern "C" __global__ void __launch_bounds__(THREADS, CTAS_PER_SM)
fatune_kernel(const __grid_constant__ Argument argument) {
  next_grid_may_begin();
  wait_for_grid_before();
  const BackwardParams &all = params_of(argument);
  extern __shared__ __align__(128) unsigned char shared[];
  const unsigned smem = shared_address(shared);
  const KeyTile keys = find_key_tile(all);
  const auto &params = at_place(all, keys.place);
  const Sequence &sequence = params.sequence;
  if (keys.k0 >= sequence.nk) return;  // of a block mask the last column of blocks may have fewer tiles; so may a list of them
  QueryWalk walk = begin_walk(sequence, params.visibility, keys);
  const bool no_step = is_over(sequence, walk.step);
  if (!no_step) {
    load_keys(params, keys, smem);
    if (STAGES == 2 && !find_warp().sums_values) load_step(params, keys, walk.step, smem, 0);
  }
  commit_copies();
  if (KV_IN_REGS) {
    wait_copies<0>();
    __syncthreads();
  }
  Worker worker;
  begin(worker, argument, smem, no_step);

  int stage = 0;             // of Q and dO
  while (!is_over(sequence, walk.step)) {
    const Step step = walk.step;
    advance(sequence, params.visibility, keys, walk);
    if (STAGES == 1) {
      __syncthreads();       // the tiles of the step before are free
      load_step(params, keys, step, smem, stage);
      commit_copies();
    }
    // With two stages one barrier says that this step's tiles are there for all and that those of the step before are free.
    wait_copies<0>();
    __syncthreads();
    take_step(worker, params, keys, step, walk.step, smem, stage);
    if (STAGES == 2) stage ^= 1;
  }
  if (DEFERRED_DQ) {
    __syncthreads();
    add_due(params, keys, smem, worker.due, -1);
  }
  end_score(worker.score, worker.warp.lane);
  finish(params, keys, smem, worker.warp, worker.rSum);
}

// ---- the list of work tiles: sequences are alike, and a kernel finds its tiles without one ------------------------------
