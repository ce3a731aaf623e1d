// fatune: forward attention, sm_100
// request  forward bf16 d16 causal dropout mask=64x64
// config   mma_forward block_m=64 block_n=64 warps=4 stages=2 q_in_regs=1 overlap_qk=1 ctas_per_sm=2
// budget   12288 bytes of shared memory, 128 threads, about 132 of 255 registers
// parts    mma_forward.cu.in, parts/ptx_common.cu.in, parts/ptx_memory.cu.in, parts/ptx_mma.cu.in, parts/ptx_copies.cu.in, parts/score_function_none.cu.in, parts/arguments.cu.in, parts/sinks_none.cu.in, parts/copy_tile.cu.in, parts/chunks.cu.in, parts/store_rows.cu.in, parts/pairs.cu.in, parts/staging.cu.in, parts/fragments.cu.in, parts/kv_fragments.cu.in, parts/sequence.cu.in, parts/sequence_rows.cu.in, parts/rows_of_heads.cu.in, parts/outputs.cu.in, parts/key_rows.cu.in, parts/softmax.cu.in, parts/quad.cu.in, parts/p_range.cu.in, parts/p_fragments.cu.in, parts/visibility.cu.in, parts/key_walk_blocks.cu.in, parts/key_parts_none.cu.in, parts/work_tile.cu.in, parts/schedule_lpt.cu.in, parts/score_none.cu.in, parts/kv_scale_none.cu.in, parts/step_scale_none.cu.in, parts/dropout.cu.in, parts/dropout_rows.cu.in, parts/mma_tile.cu.in, parts/mma_rows.cu.in, parts/mma_loop_overlap.cu.in, parts/rows_of_o.cu.in, parts/epilogue_mma.cu.in, parts/copy_queries.cu.in, parts/work_list_none.cu.in
// again    fatune emit 'forward bf16 d16 nq1 causal dropout mask=64x64' --gpu sm_100 --config 'mma_forward block_m=64 block_n=64 warps=4 stages=2 q_in_regs=1 overlap_qk=1 ctas_per_sm=2'
//
// O = softmax(scale Q K^T) V by tiles (FlashAttention, arXiv 2205.14135 and 2307.08691): a block owns
// BLOCK_M queries of one head and walks over the keys BLOCK_N at a time, from the last to the first, so
// that tiles cut by the end of the keys or by the diagonal come first. A warp owns WARP_ROWS queries.

// ---- constants ---------------------------------------------------------------------------------
constexpr int BLOCK_M = 64;    // query rows of a block
constexpr int BLOCK_N = 64;     // keys of a step
constexpr int WARPS = 4;
constexpr int THREADS = 32 * WARPS;
constexpr int STAGES = 2;       // K and V tiles in shared memory
constexpr int CTAS_PER_SM = 2;

constexpr int HEAD_DIM = 16;   // of Q, K
constexpr int HEAD_DIM_V = 16; // of V, O
constexpr int D_PAD = 16;      // in shared memory: multiples of 16, the rest zeros
constexpr int DV_PAD = 16;
constexpr int Q_STRIDE = 48, K_STRIDE = 48;  // bytes from row to row of Q, of K,
constexpr int V_STRIDE = 48, O_STRIDE = 48;  // of V, of the staged O

constexpr int KEY_WARPS = 1;   // that share their rows: each has a part of a step's keys
constexpr int WARP_ROWS = BLOCK_M / (WARPS / KEY_WARPS);
constexpr int WARP_KEYS = BLOCK_N / KEY_WARPS;
constexpr int M_TILES = WARP_ROWS / 16;   // mma tiles of a warp: rows,
constexpr int N_TILES = WARP_KEYS / 8;    // keys of a step,
constexpr int O_TILES = HEAD_DIM_V / 8;   // columns of O
constexpr int K_STEPS = D_PAD / 16;       // depth of Q K^T

constexpr int K_STAGE = BLOCK_N * K_STRIDE;  // bytes
constexpr int V_STAGE = BLOCK_N * V_STRIDE;
constexpr int SMEM_K = 0, SMEM_V = 6144;  // Q and O are at 0
constexpr int MASK_ROWS = 64, MASK_COLS = 64;  // of a block of the block mask; 0: none
constexpr int PAGE = 0;           // rows of a page of K and V; 0: there are no pages

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

// The factor of the scores.
struct Softmax {
  float scale;                       // > 0
  float scale_log2;                  // scale * log2(e)
};
static_assert(sizeof(Softmax) == 8, "the host fills 8 bytes");

// Walks that are divided into parts, each with an O and an LSE of its own, in the workspace.
struct KeyParts {
  float *o;                          // [most, rows, HEAD_DIM_V]
  float *lse;                        // [most, rows], natural logarithms
  long long rows;                    // query rows of all batch_heads; of the divided tiles (schedule_longest); of the parts of a block (schedule_stream)
  int steps;                         // of a part, about
  int most;                          // parts of a walk; 1: none is divided; blocks, of which each may have a part of a walk (schedule_stream)
};
static_assert(sizeof(KeyParts) == 32, "the host fills 32 bytes");

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

// Pages and heads of a tensor as one dimension, whose stride divides both of theirs.
struct Slots {
  int page;                          // from one page to the next
  int head;
};
static_assert(sizeof(Slots) == 8, "the host fills 8 bytes");

// K and V in pages, which their batch entries then are; all null where they are not.
struct Pages {
  const int *table;                  // of a batch entry, the page of its rows i * PAGE to i * PAGE + PAGE - 1 in column i
  const int *lengths;                // [batch]: keys of each batch entry
  long long batch;                   // from one batch entry to the next in the table, in numbers
  long long column;                  // from one column to the next, likewise
  Slots k;                           // for TMA
  Slots v;                           // likewise
  int columns;                       // of the table: for the emulator, likewise below
  int count;                         // pages that there are
};
static_assert(sizeof(Pages) == 56, "the host fills 56 bytes");

// The argument of a forward kernel.
struct ForwardParams {
  Tensor q;
  Tensor k;
  Tensor v;
  Tensor o;                          // written
  float *lse;                        // [batch, heads_q, nq], written, or null
  Dropout dropout;
  Visibility visibility;
  Sequence sequence;
  Schedule schedule;
  Softmax softmax;
  KeyParts parts;
  const float *sinks;                // [heads_q], of unpacked heads; null without sinks
  Ragged ragged;
  Pages pages;
};
static_assert(sizeof(ForwardParams) == 496, "the host fills 496 bytes");


// ---- sinks: there are none -----------------------------------------------------------------------------------------------
template <class Params> __device__ __forceinline__ float add_sink(float &, const Params &, int) { return 1.f; }

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

// ---- fragments of K and V, whose elements are those of Q --------------------------------------------------------------
constexpr int KV_CHUNK = CHUNK;  // elements of K and V in 16 bytes

template <int STRIDE> __device__ __forceinline__ unsigned keys_first(unsigned tile, int lane) {
  return columns_first<STRIDE>(tile, lane);
}

template <int STRIDE> __device__ __forceinline__ unsigned values_first(unsigned tile, int lane) {
  return across<STRIDE>(tile, lane);
}

// B fragments: of 16 keys the k-th 16 columns of K as the depth; of 16 keys, the depth, the place-th 16 columns of V.
template <int STRIDE>
__device__ __forceinline__ void load_keys(unsigned (&r)[FRAGMENT], unsigned address, int k, int offset) {
  load_fragment<STRIDE>(r, address, k, offset);
}

template <int STRIDE>
__device__ __forceinline__ void load_values(unsigned (&r)[FRAGMENT], unsigned address, int place, int offset) {
  load_across<STRIDE>(r, address, place, offset);
}

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

// ---- rows of K and V -------------------------------------------------------------------------------------------------
// Those of one head of a batch entry.
struct KeyRows {
  const element *first;
  int row;                   // from one row to the next
};

__device__ __forceinline__ KeyRows key_rows(const ForwardParams &, const Tensor &tensor, int batch, int head) {
  return {row_of(tensor, batch, head, 0), int(tensor.stride.row)};
}

// A tile of them, from row `key` on, of nk rows; parts/copy_tile.cu.in.
template <int ROWS, int CHUNKS, int VALID, int STRIDE>
__device__ __forceinline__ void copy_keys(unsigned to, const KeyRows &rows, int key, int nk) {
  copy_tile<ROWS, CHUNKS, VALID, STRIDE>(to, rows.first + (long long)key * rows.row, rows.row, nk - key);
}

// ---- online softmax (arXiv 1805.02867) -------------------------------------------------------------
// In base 2: p = 2^(s scale_log2 - max scale_log2), one FFMA and one MUFU per element. row_max holds the
// raw maximum over the quad of lanes that shares a row, row_sum this lane's part of the sum.

// ---- rows over the quad of lanes that share them -----------------------------------------------------
#define MINUS_INFINITY __int_as_float(0xff800000)

__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// A row that has seen no key yet has maximum -inf; 0 stands in for it, so that 2^(-inf - 0) = 0, not NaN.
__device__ __forceinline__ float finite_max(float x) { return x == MINUS_INFINITY ? 0.f : x; }

// O and the sums are rescaled to new maxima only when a maximum of the warp has moved by more than this: until then
// p may exceed 1, up to 2^RESCALE_LIMIT, which costs no precision in either type.
constexpr float RESCALE_LIMIT = 8.f;

// P of a row's maximum is 2^P_OFFSET, and until a maximum is followed P may be up to 2^P_LIMIT.
constexpr float P_OFFSET = 0.f, P_LIMIT = RESCALE_LIMIT;

// The state of the rows that a lane has a share of: two in each m tile.
template <int M> struct SoftmaxRows {
  float row_max[M][2], row_sum[M][2];
};

template <int M> __device__ __forceinline__ SoftmaxRows<M> begin_rows() {
  SoftmaxRows<M> rows;
  #pragma unroll
  for (int m = 0; m < M; ++m) {
    rows.row_max[m][0] = rows.row_max[m][1] = MINUS_INFINITY;
    rows.row_sum[m][0] = rows.row_sum[m][1] = 0.f;
  }
  return rows;
}

// New maxima, and the correction of O and row_sum to them where one has moved far enough (lazy rescaling).
template <int M, int N, int TILES>
__device__ __forceinline__ void update_max(float (&rO)[M][TILES][4], SoftmaxRows<M> &rows, const float (&rS)[M][N][4],
                                           float scale_log2) {
  float new_max[M][2];
  bool moved = false;
  #pragma unroll
  for (int m = 0; m < M; ++m) {
    #pragma unroll
    for (int h = 0; h < 2; ++h) {
      float x = fmaxf(rS[m][0][2 * h], rS[m][0][2 * h + 1]);
      #pragma unroll
      for (int n = 1; n < N; ++n) x = fmaxf(x, fmaxf(rS[m][n][2 * h], rS[m][n][2 * h + 1]));
      new_max[m][h] = fmaxf(rows.row_max[m][h], quad_max(x));
      moved |= (new_max[m][h] - rows.row_max[m][h]) * scale_log2 > P_LIMIT - P_OFFSET;
    }
  }
  if (!__any_sync(0xffffffffu, moved)) return;
  #pragma unroll
  for (int m = 0; m < M; ++m) {
    #pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float correction = ex2((rows.row_max[m][h] - finite_max(new_max[m][h])) * scale_log2);
      rows.row_max[m][h] = new_max[m][h];
      rows.row_sum[m][h] *= correction;
      #pragma unroll
      for (int n = 0; n < TILES; ++n) {
        rO[m][n][2 * h] *= correction;
        rO[m][n][2 * h + 1] *= correction;
      }
    }
  }
}

// What exponents are relative to.
template <int M> __device__ __forceinline__ void scale_max(float (&max_scaled)[M][2], const SoftmaxRows<M> &rows,
                                                           float scale_log2) {
  #pragma unroll
  for (int m = 0; m < M; ++m) {
    max_scaled[m][0] = finite_max(rows.row_max[m][0]) * scale_log2 - P_OFFSET;
    max_scaled[m][1] = finite_max(rows.row_max[m][1]) * scale_log2 - P_OFFSET;
  }
}

// S of 16 keys -> unnormalised P as the A fragments of the second product; adds `weight` times
// as much to row_sum.
template <int M, int N>
__device__ __forceinline__ void exponentiate(unsigned (&rP)[M][FRAGMENT], SoftmaxRows<M> &rows, const float (&rS)[M][N][4],
                                             const float (&max_scaled)[M][2], int k, float scale_log2,
                                             float weight) {
  #pragma unroll
  for (int m = 0; m < M; ++m) {
    #pragma unroll
    for (int i = 0; i < 4; ++i) {  // pair i: rows g + 8 (i % 2), keys 8 (i / 2) + 2 t
      const float *s = rS[m][2 * k + i / 2] + 2 * (i % 2);
      const float p0 = ex2(s[0] * scale_log2 - max_scaled[m][i % 2]);
      const float p1 = ex2(s[1] * scale_log2 - max_scaled[m][i % 2]);
      rows.row_sum[m][i % 2] += weight * (p0 + p1);
      set_pair(rP[m], i, p0, p1);
    }
  }
}

// The end of a row: what O is multiplied by, and LSE = ln sum + max scale. A sum is 2^P_OFFSET times what it stands for. A row that saw no key has sum 0: O = 0 and
// LSE = -inf.
struct RowEnd {
  float normaliser, lse;
};

template <int M>
__device__ __forceinline__ RowEnd end_row(const SoftmaxRows<M> &rows, int m, int h, float scale_log2) {
  const float sum = quad_sum(rows.row_sum[m][h]);
  return {sum > 0.f ? 1.f / sum : 0.f,
          sum == 0.f ? MINUS_INFINITY : (rows.row_max[m][h] * scale_log2 - P_OFFSET + lg2(sum)) * 0.69314718f};
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

// The walk of a query tile over the keys: the kept blocks of its row of mask blocks, BLOCK_N keys at a time, as far as
// the rows see a key of them.
struct Keys {
  int steps;
  const int *blocks;
  int first_step;            // of the first block
};

constexpr bool DIVIDED = false;            // a walk may be a part of one
constexpr bool BEGINS_LATE = HIDES_FIRST_KEYS || DIVIDED;  // a walk need not begin with the first keys

typedef MaskList KeptBlocks;   // of a row of mask blocks

// Query tiles by their rank: the longest lists come first. Heads are packed where all have the same lists.
template <int BLOCK_M>
__device__ __forceinline__ int row_of_rank(KeptBlocks &kept, const Visibility &visibility, const Schedule &, int batch,
                                           int head, int rank, int pack_bits = 0) {
  static_assert(MASK_ROWS % BLOCK_M == 0, "a tile lies in one row of mask blocks");
  const int tiles = MASK_ROWS / BLOCK_M << pack_bits;  // of a row of mask blocks
  const MaskLists &rows = visibility.rows;
  kept = rows.lists[batch * rows.batch_lists + head * rows.head_lists + rank / tiles];
  return (kept.block * tiles + rank % tiles) * BLOCK_M;
}

// How many of `count` ascending blocks begin before this key, by halves.
__device__ __forceinline__ int count_before(const int *blocks, int count, int key) {
  int low = 0;
  while (low < count) {
    const int middle = (low + count) / 2;
    if (key > 0 && block_of(blocks[middle]) <= (key - 1) / MASK_COLS) low = middle + 1; else count = middle;
  }
  return low;
}

template <int BLOCK_N>
__device__ __forceinline__ Keys find_keys(const Sequence &sequence, const Visibility &visibility, const KeptBlocks &kept,
                                          int first_row, int last_row) {
  constexpr int STEPS = MASK_COLS / BLOCK_N;  // of a block
  static_assert(MASK_COLS % BLOCK_N == 0, "a step lies in one column of mask blocks");
  Keys keys = {0, visibility.rows.blocks + kept.start, 0};
  const int end = keys_seen(sequence, visibility, last_row).end;
  int count = HIDES_LAST_KEYS ? count_before(keys.blocks, kept.count, end) : kept.count;
  if (HIDES_FIRST_KEYS) {
    // Blocks that end before the first key: those before the block in which it lies.
    const int begin = max(0, keys_seen(sequence, visibility, first_row).begin) / MASK_COLS * MASK_COLS;
    const int before = count_before(keys.blocks, count, begin);
    keys.blocks += before;
    count -= before;
  }
  if (count > 0) {
    const int seen = end - block_of(keys.blocks[count - 1]) * MASK_COLS;  // keys of the last block before the end
    const int unseen = seen < MASK_COLS ? STEPS - (seen + BLOCK_N - 1) / BLOCK_N : 0;
    keys.steps = count * STEPS - unseen;
    if (HIDES_FIRST_KEYS) {
      const int hidden = keys_seen(sequence, visibility, first_row).begin - block_of(keys.blocks[0]) * MASK_COLS;
      keys.first_step = hidden > 0 ? hidden / BLOCK_N : 0;
      keys.steps = max(0, keys.steps - keys.first_step);
    }
  }
  return keys;
}

// Its steps from begin to end - 1.
__device__ __forceinline__ Keys part_of(const Keys &keys, int begin, int end) {
  return {end - begin, keys.blocks, keys.first_step + begin};
}

// The number of a step among those of all blocks: 0 is the first block's first, where the walk need not begin.
__device__ __forceinline__ int from_first(const Keys &keys, int step) {
  return BEGINS_LATE ? keys.first_step + step : step;
}

// First key of a step.
template <int BLOCK_N> __device__ __forceinline__ int key_of(const Keys &keys, int step) {
  constexpr int STEPS = MASK_COLS / BLOCK_N;
  const int place = from_first(keys, step);
  return block_of(keys.blocks[place / STEPS]) * MASK_COLS + place % STEPS * BLOCK_N;
}

// Whether the score function is known to hide nothing of it.
template <int BLOCK_N> __device__ __forceinline__ bool sees_whole(const Keys &keys, int step) {
  constexpr int STEPS = MASK_COLS / BLOCK_N;
  return is_seen_whole(keys.blocks[from_first(keys, step) / STEPS]);
}

// ---- key parts: a work tile has all keys of its walk -------------------------------------------------------------------
struct KeyPart {};

__device__ __forceinline__ void merge_may_begin() {}
__device__ __forceinline__ bool is_missing(const KeyPart &) { return false; }
__device__ __forceinline__ bool is_whole(const KeyPart &) { return true; }
__device__ __forceinline__ Keys take_part(KeyPart &, const ForwardParams &, const Keys &keys) { return keys; }
__device__ __forceinline__ void store_lse(const ForwardParams &params, const KeyPart &, long long row, float lse) {
  if (params.lse) params.lse[row] = lse;
}

__device__ __forceinline__ long long row_of_part(const ForwardParams &params, const KeyPart &, int batch, int head, int i) {
  return lse_index(params, batch, head, i);
}
__device__ __forceinline__ void wait_for_room() {}
template <class Tile> __device__ __forceinline__ void put_together(const ForwardParams &, const Tile &, unsigned, int) {}
__device__ __forceinline__ void store_partial(const ForwardParams &, const KeyPart &, long long, int, float, float) {}


// ---- work tiles ------------------------------------------------------------------------------------------------------
// A block of query rows of one head.
struct WorkTile {
  int q0;                    // first query row
  int head, batch, kv_head;
  SequencePlace place;               // of its batch entry
  KeyPart part;              // of its walk
  KeptBlocks kept;           // of the keys
};

// A work tile by its rank among those of its batch_head. Rank 0 has the most keys.
__device__ __forceinline__ WorkTile work_tile_of_rank(const ForwardParams &params, unsigned batch_head, int rank) {
  WorkTile tile;
  tile.batch = batch_head / params.sequence.heads_q;
  tile.place = batch_place(params, tile.batch);
  tile.head = batch_head % params.sequence.heads_q;
  tile.kv_head = tile.head / params.sequence.group;
  tile.q0 = row_of_rank<BLOCK_M>(tile.kept, params.visibility, params.schedule, tile.batch, tile.head, rank,
                                 pack_bits_of(params.sequence));
  return tile;
}

// Its last row that is a query.
__device__ __forceinline__ int last_row_of(const ForwardParams &params, const WorkTile &tile) {
  return min(tile.q0 + BLOCK_M, params.sequence.nq) - 1;
}

// Its walk, with the arguments at its place.
__device__ __forceinline__ Keys whole_walk(const ForwardParams &params, const WorkTile &tile) {
  return find_keys<BLOCK_N>(params.sequence, params.visibility, tile.kept, tile.q0, last_row_of(params, tile));
}

// Its part of the walk, likewise.
__device__ __forceinline__ Keys find_keys(const ForwardParams &params, WorkTile &tile) {
  return take_part(tile.part, params, whole_walk(params, tile));
}

// ---- the tile scheduler: longest processing time first -------------------------------------------------
// The batch_heads of an L2 section are so few that their K and V stay in L2 together. The sections follow one another. In a
// section all work tiles of rank 0 start first, then those of rank 1, and so on: the shortest are left for the end.
struct TileCursor {
  unsigned number;           // of the work tile in this order
};

__device__ __forceinline__ TileCursor first_work(const ForwardParams &) { return {blockIdx.x}; }

__device__ __forceinline__ TileCursor next_work(const ForwardParams &, const TileCursor &cursor) {
  return {cursor.number + gridDim.x};
}

__device__ __forceinline__ bool is_done(const ForwardParams &params, const TileCursor &cursor) {
  return cursor.number >= unsigned(params.schedule.q_tiles) * params.sequence.batch * params.sequence.heads_q;
}

__device__ __forceinline__ WorkTile work_tile_at(const ForwardParams &params, const TileCursor &cursor) {
  const unsigned section_tiles = unsigned(params.schedule.l2_section_heads) * params.schedule.q_tiles;
  const unsigned section = cursor.number / section_tiles;
  const unsigned first_head = section * params.schedule.l2_section_heads;
  const unsigned heads = min(unsigned(params.schedule.l2_section_heads), params.sequence.batch * params.sequence.heads_q - first_head);
  const unsigned rest = cursor.number - section * section_tiles;
  return work_tile_of_rank(params, first_head + rest % heads, rest / heads);
}

// ---- score: s -> s', before visibility and softmax ------------------------------------------------------------
// No score function: all is the identity.
constexpr bool SCORES_HIDE = false;

template <int M> struct ScoredRows {};

template <int M, class Params>
__device__ __forceinline__ ScoredRows<M> begin_score(const Params &, int, int, int, int, float) { return {}; }

template <int M, int N, class Params>
__device__ __forceinline__ void apply_score(float (&)[M][N][4], const ScoredRows<M> &, const Params &, int, bool,
                                            int) {}

// ---- the scales of K and V: their numbers are as they are ----------------------------------------------------------------
struct ValueScale {};

__device__ __forceinline__ const ForwardParams &forward_of(const ForwardParams &all) { return all; }

template <class Params> __device__ __forceinline__ Params scaled(const ForwardParams &, Params &&params, int, int, int, int) {
  return static_cast<Params &&>(params);
}

__device__ __forceinline__ ValueScale value_scale(const ForwardParams &, const ForwardParams &, int, int) {
  return {};
}

__device__ __forceinline__ float factor_of(const ValueScale &) { return 1.f; }

// Of a step nothing is its own.
__device__ __forceinline__ void begin_step(ValueScale &, const ForwardParams &, int) {}
template <int M, int N> __device__ __forceinline__ void scale_scores(float (&)[M][N][4], const ValueScale &) {}
template <int M, int N> __device__ __forceinline__ void make_exponents(float (&)[M][N][4], const ValueScale &) {}
__device__ __forceinline__ float weight_of(const ValueScale &) { return 1.f; }

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

// ---- dropout of P: lanes hold rows of queries -------------------------------------------------------------
constexpr int KEYS_PER_DRAW = WARP_KEYS % 64 == 0 ? 64 : WARP_KEYS % 32 == 0 ? 32 : 16;
constexpr bool DRAWS_EARLY = false;  // beside Q K^T, those of a whole step; else beside P V, as needed
constexpr int DRAWS_HELD = DRAWS_EARLY ? WARP_KEYS / KEYS_PER_DRAW : 1;

// Draws down the rows of a warp: one for two m tiles where those lie in one block of 32 rows.
constexpr int ROW_DRAWS = WARP_ROWS % 32 == 0 ? M_TILES / 2 : M_TILES;

struct DropoutRows {
  Seed seed;
  unsigned batch_head;                       // counter word
  unsigned lane_row, lane_column;            // what this lane and the run's origin add to the other two
  int row_block;                             // this warp's first row / 16
  int key_block;                             // this step's first key / 16
  unsigned random[DRAWS_HELD][ROW_DRAWS][4];
};

__device__ __forceinline__ DropoutRows begin_dropout(const Dropout &arguments, const Sequence &, int batch, int head,
                                                     int first_row, int lane) {
  DropoutRows dropout;
  dropout.seed = find_seed(arguments);
  dropout.batch_head = uniform(counter_head(arguments, batch, head));
  dropout.lane_row = arguments.first_query / 4 + lane / 4;
  dropout.lane_column = arguments.first_key / 16 + lane % 4;
  dropout.row_block = first_row / 16;
  dropout.key_block = 0;
  return dropout;
}

// Before the first draw of a step.
__device__ __forceinline__ void begin_step(DropoutRows &dropout, int first_key) { dropout.key_block = first_key / 16; }

// The draws that serve the keys from 16 `block` of this step on, for all rows of the warp.
__device__ __forceinline__ void draw(DropoutRows &dropout, int block) {
  #pragma unroll
  for (int d = 0; d < ROW_DRAWS; ++d) {
    unsigned (&random)[4] = dropout.random[block * 16 / KEYS_PER_DRAW % DRAWS_HELD][d];
    random[0] = dropout.seed.offset;
    random[1] = (dropout.key_block + block) / 4 * 4 + dropout.lane_column;
    random[2] = dropout.batch_head;
    random[3] = (dropout.row_block + d * M_TILES / ROW_DRAWS) / 2 * 8 + dropout.lane_row;
    philox(random, dropout.seed.key[0], dropout.seed.key[1]);
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (DRAWS_EARLY) pin(random[i]);
    }
  }
}

// Between the 16s of the depth of Q K^T: this one's share of the step's draws. Between those of P V: always one draw ahead
// of its use, so that the chain of rounds hides behind the products.
__device__ __forceinline__ void draw_beside_qk(DropoutRows &dropout, int k, int depth) {
  if (!DRAWS_EARLY) return;
  #pragma unroll
  for (int i = k * DRAWS_HELD / depth; i < (k + 1) * DRAWS_HELD / depth; ++i) draw(dropout, i * KEYS_PER_DRAW / 16);
}

__device__ __forceinline__ void draw_before_pv(DropoutRows &dropout) {
  if (!DRAWS_EARLY) draw(dropout, 0);
}

__device__ __forceinline__ void draw_beside_pv(DropoutRows &dropout, int k) {
  if (!DRAWS_EARLY && (k + 1) * 16 % KEYS_PER_DRAW == 0 && k + 1 < WARP_KEYS / 16) draw(dropout, k + 1);
}

// Zeroes the dropped elements of a fragment of P, number COLUMN + 4 row. 14-bit integers compare like the fp16
// numbers of the same bits.
template <int COLUMN>
__device__ __forceinline__ void drop_fragment(unsigned (&rP)[FRAGMENT], const unsigned (&random)[4], int row,
                                              unsigned threshold_pair) {
  #pragma unroll
  for (int w = 0; w < 4; ++w) {
    unsigned word = random[w];
    if (COLUMN == 0) {
      word ^= (ror(random[(w + 1) % 4], 8) ^ ror(random[(w + 2) % 4], 20)) & (row == 0 ? 0u : ~0u);
    } else {
      word ^= ror(random[(w + COLUMN) % 4], row == 0 ? 8 : 20);
    }
    keep_pair(rP, w, halves_ge(word & 0x3FFF3FFFu, threshold_pair));
  }
}

// The 16 keys from 16 `block` of this step on. The compiler knows row and column where tiles are whole blocks of
// 32 rows and 64 keys.
__device__ __forceinline__ void drop(unsigned (&rP)[M_TILES][FRAGMENT], const DropoutRows &dropout, int block) {
  const int column = WARP_KEYS % 64 == 0 ? block % 4 : (dropout.key_block + block) % 4;
  #pragma unroll
  for (int m = 0; m < M_TILES; ++m) {
    const int row = WARP_ROWS % 32 == 0 ? m % 2 : (dropout.row_block + m) % 2;
    const unsigned (&random)[4] =
        dropout.random[block * 16 / KEYS_PER_DRAW % DRAWS_HELD][m * ROW_DRAWS / M_TILES];
    switch (column) {
      case 0: drop_fragment<0>(rP[m], random, row, dropout.seed.threshold_pair); break;
      case 1: drop_fragment<1>(rP[m], random, row, dropout.seed.threshold_pair); break;
      case 2: drop_fragment<2>(rP[m], random, row, dropout.seed.threshold_pair); break;
      default: drop_fragment<3>(rP[m], random, row, dropout.seed.threshold_pair); break;
    }
  }
}

// Draws as they are needed, and drops.
__device__ __forceinline__ void draw_and_drop(unsigned (&rP)[M_TILES][FRAGMENT], DropoutRows &dropout, int k) {
  if (k * 16 % KEYS_PER_DRAW == 0) draw(dropout, k);
  drop(rP, dropout, k);
}

// dP of the k-th 16 keys as dS wants it, in place: dropped elements, which are 0 in `kept`, have none.
template <int N>
__device__ __forceinline__ void drop_dp(float (&rDP)[M_TILES][N][4], DropoutRows &dropout, const Dropout &arguments, int k) {
  unsigned kept[M_TILES][FRAGMENT];
  #pragma unroll
  for (int m = 0; m < M_TILES; ++m) {
    #pragma unroll
    for (int i = 0; i < FRAGMENT; ++i) kept[m][i] = ~0u;
  }
  draw_and_drop(kept, dropout, k);
  #pragma unroll
  for (int m = 0; m < M_TILES; ++m) {
    #pragma unroll
    for (int i = 0; i < 4; ++i) {  // pair i: rows g + 8 (i % 2), keys 8 (i / 2) + 2 t
      float *dp = rDP[m][2 * k + i / 2] + 2 * (i % 2);
      dp[0] *= first_kept(kept[m], i) ? arguments.rescale : 0.f;
      dp[1] *= second_kept(kept[m], i) ? arguments.rescale : 0.f;
    }
  }
}

// ---- the two products, mma.sync fragments from shared memory ---------------------------------------
// Shared-memory addresses of this lane: of its queries as A fragments, of K as B fragments, of V across, of stage 0.
struct Lanes {
  unsigned sQ, sK, sV;
};

__device__ __forceinline__ Lanes find_lanes(unsigned smem, int warp, int lane) {
  Lanes lanes;
  const int own_keys = warp % KEY_WARPS * WARP_KEYS;
  lanes.sQ = rows_first<Q_STRIDE>(smem + warp / KEY_WARPS * WARP_ROWS * Q_STRIDE, lane);
  lanes.sK = keys_first<K_STRIDE>(smem + SMEM_K + own_keys * K_STRIDE, lane);
  lanes.sV = values_first<V_STRIDE>(smem + SMEM_V + own_keys * V_STRIDE, lane);
  return lanes;
}

// This warp's queries as A fragments, in registers.
struct Queries {
  unsigned rQ[M_TILES][K_STEPS][FRAGMENT];
};

// Q is in shared memory, which K and V take over.
__device__ __forceinline__ Queries keep_queries(unsigned sQ) {
  Queries queries;
  commit_copies();
  wait_copies<0>();
  __syncthreads();
  #pragma unroll
  for (int m = 0; m < M_TILES; ++m) {
    #pragma unroll
    for (int k = 0; k < K_STEPS; ++k) {
      load_fragment<Q_STRIDE>(queries.rQ[m][k], sQ, k, m * 16 * Q_STRIDE);
    }
  }
  __syncthreads();
  return queries;
}

__device__ __forceinline__ void load_queries(unsigned (&rQ)[M_TILES][FRAGMENT], const Queries &queries, int k) {
  #pragma unroll
  for (int m = 0; m < M_TILES; ++m) {
    #pragma unroll
    for (int i = 0; i < FRAGMENT; ++i) rQ[m][i] = queries.rQ[m][k][i];
  }
}

// S += Q K^T, the part of depth 16 at k.
__device__ __forceinline__ void gemm_qk_step(float (&rS)[M_TILES][N_TILES][4], const Queries &queries,
                                             unsigned sK, int k) {
  unsigned rQ[M_TILES][FRAGMENT];
  load_queries(rQ, queries, k);
  #pragma unroll
  for (int n = 0; n < N_TILES; n += 2) {
    unsigned rK[FRAGMENT];
    load_keys<K_STRIDE>(rK, sK, k, n * 8 * K_STRIDE);
    #pragma unroll
    for (int m = 0; m < M_TILES; ++m) {
      multiply(rS[m][n], rQ[m], rK, 0);
      multiply(rS[m][n + 1], rQ[m], rK, 1);
    }
  }
}

// S = Q K^T
__device__ __forceinline__ void gemm_qk(float (&rS)[M_TILES][N_TILES][4], const Queries &queries, DropoutRows &dropout,
                                        unsigned sK) {
  #pragma unroll
  for (int m = 0; m < M_TILES; ++m) {
    #pragma unroll
    for (int n = 0; n < N_TILES; ++n) rS[m][n][0] = rS[m][n][1] = rS[m][n][2] = rS[m][n][3] = 0.f;
  }
  #pragma unroll
  for (int k = 0; k < K_STEPS; ++k) {
    gemm_qk_step(rS, queries, sK, k);
    draw_beside_qk(dropout, k, K_STEPS);
  }
}

// O += P V, the part of the 16 keys at k.
__device__ __forceinline__ void gemm_pv_step(float (&rO)[M_TILES][O_TILES][4],
                                             const unsigned (&rP)[M_TILES][FRAGMENT], unsigned sV, int k) {
  #pragma unroll
  for (int n = 0; n < O_TILES; n += 2) {
    unsigned rV[FRAGMENT];
    load_values<V_STRIDE>(rV, sV, n / 2, k * 16 * V_STRIDE);
    #pragma unroll
    for (int m = 0; m < M_TILES; ++m) {
      multiply(rO[m][n], rP[m], rV, 0);
      if (n + 1 < O_TILES) multiply(rO[m][n + 1], rP[m], rV, 1);
    }
  }
}

// P of one step and O += P V, 16 keys at a time: the exponentials of the next 16 keys are ready to run while the matrix
// unit works on these.
__device__ __forceinline__ void softmax_gemm_pv(float (&rO)[M_TILES][O_TILES][4],
                                                const float (&rS)[M_TILES][N_TILES][4], SoftmaxRows<M_TILES> &rows,
                                                DropoutRows &dropout, unsigned sV, float scale_log2, float weight) {
  float max_scaled[M_TILES][2];
  scale_max(max_scaled, rows, scale_log2);
  draw_before_pv(dropout);
  #pragma unroll
  for (int k = 0; k < WARP_KEYS / 16; ++k) {
    unsigned rP[M_TILES][FRAGMENT];
    exponentiate(rP, rows, rS, max_scaled, k, scale_log2, weight);
    drop(rP, dropout, k);
    draw_beside_pv(dropout, k);
    gemm_pv_step(rO, rP, sV, k);
  }
}

// ---- the rows of a warp ----------------------------------------------------------------------------------------------
struct Rows {
  int lane, first_row;       // of the warp
  int own_keys;              // the first of its keys among those of a step
  Lanes lanes;
  DropoutRows dropout;
  SoftmaxRows<M_TILES> softmax;
  ScoredRows<M_TILES> score;
  ValueScale values;
  float rO[M_TILES][O_TILES][4];
};

__device__ __forceinline__ int first_row_of(const WorkTile &tile, int warp) {
  return tile.q0 + warp / KEY_WARPS * WARP_ROWS;
}

// What becomes of S before the softmax.
__device__ __forceinline__ void prepare_scores(float (&rS)[M_TILES][N_TILES][4], const ForwardParams &params,
                                               const Rows &rows, int key, bool sees_whole) {
  scale_scores(rS, rows.values);
  apply_score(rS, rows.score, params, key, sees_whole, rows.lane);
  make_exponents(rS, rows.values);
  if (!is_full(params.sequence, params.visibility, rows.first_row, rows.first_row + WARP_ROWS - 1, key, WARP_KEYS)) {
    hide_scores(rS, params.sequence, params.visibility, rows.first_row, key, rows.lane);
  }
}

// The accumulators beside those of an even number; of the last, which may be alone, its own.
template <int TILES> __device__ __forceinline__ const float (&second_of_two(const float (&rO)[TILES][4], int n))[4] {
  return rO[n / 2 * 2 + 1 < TILES ? n / 2 * 2 + 1 : TILES - 1];
}

// ---- the walk over the keys: Q K^T of the next step beside the softmax of this one ------------------------------------------
// S of the next step is computed between the maximum and the exponentials of this one: the matrix unit has work while the
// exponentials run. A group of copies is V of one step and K of the next.
template <class LoadK, class LoadV>
__device__ __forceinline__ void walk(Rows &rows, const ForwardParams &params, const Queries &queries, const Keys &keys,
                                     LoadK load_k, LoadV load_v) {
  const int last = keys.steps - 1;
  load_k(key_of<BLOCK_N>(keys, last), 0);
  commit_copies();
  #pragma unroll
  for (int ahead = 0; ahead < STAGES - 1; ++ahead) {
    if (last - ahead - 1 >= 0) load_k(key_of<BLOCK_N>(keys, last - ahead - 1), ahead + 1);
    if (last - ahead >= 0) load_v(key_of<BLOCK_N>(keys, last - ahead), ahead);
    commit_copies();
  }
  float rS[M_TILES][N_TILES][4];
  wait_copies<STAGES - 1>();
  __syncthreads();
  gemm_qk(rS, queries, rows.dropout, rows.lanes.sK);
  int stage = 0;  // of V of this step; K of it was there, too
  for (int step = last; step >= 0; --step) {
    const int next_stage = stage + 1 == STAGES ? 0 : stage + 1;
    wait_copies<STAGES - 2>();
    __syncthreads();
    if (step - STAGES >= 0) load_k(key_of<BLOCK_N>(keys, step - STAGES), stage);
    if (step - (STAGES - 1) >= 0) {
      load_v(key_of<BLOCK_N>(keys, step - (STAGES - 1)), stage == 0 ? STAGES - 1 : stage - 1);
    }
    commit_copies();

    const int key = key_of<BLOCK_N>(keys, step);
    const unsigned sV = rows.lanes.sV + stage * V_STAGE;
    begin_step(rows.dropout, key);
    begin_step(rows.values, params, key);
    prepare_scores(rS, params, rows, key, sees_whole<BLOCK_N>(keys, step));
    update_max(rows.rO, rows.softmax, rS, params.softmax.scale_log2);
    if (step > 0) {  // one block of code, so that the compiler can interleave the two lines
      float rS_next[M_TILES][N_TILES][4];
      gemm_qk(rS_next, queries, rows.dropout, rows.lanes.sK + next_stage * K_STAGE);
      softmax_gemm_pv(rows.rO, rS, rows.softmax, rows.dropout, sV, params.softmax.scale_log2,
                      weight_of(rows.values));
      #pragma unroll
      for (int m = 0; m < M_TILES; ++m) {
        #pragma unroll
        for (int n = 0; n < N_TILES; ++n) {
          #pragma unroll
          for (int i = 0; i < 4; ++i) rS[m][n][i] = rS_next[m][n][i];
        }
      }
    } else {
      softmax_gemm_pv(rows.rO, rS, rows.softmax, rows.dropout, sV, params.softmax.scale_log2,
                      weight_of(rows.values));
    }
    stage = next_stage;
  }
}

// ---- how rows of O leave the registers: through shared memory, so that global stores are whole rows of 16-byte chunks --------
// Row g or g + 8 (h) of the m-th tile of a warp.
__device__ __forceinline__ void put_row(const ForwardParams &, const WorkTile &, const Rows &rows, unsigned sO, int m, int h,
                                        float normaliser) {
  #pragma unroll
  for (int n = 0; n < O_TILES; n += 2) {
    stage_row<O_STRIDE>(sO, m * 16 + h * 8 + rows.lane / 4, n / 2, rows.rO[m][n], second_of_two(rows.rO[m], n), h, normaliser,
                        rows.lane);
  }
}

// When all rows of a warp are put.
__device__ __forceinline__ void end_rows(const ForwardParams &params, const WorkTile &tile, const Rows &rows, unsigned sO) {
  __syncwarp();
  store_rows<WARP_ROWS, HEAD_DIM_V / CHUNK, O_STRIDE>(row_of(params.o, tile.batch, tile.head, rows.first_row),
                                                  params.o.stride.row, sO, params.sequence.nq - rows.first_row, rows.lane, 32);
}

// ---- the end: O and LSE ----------------------------------------------------------------------------------------------
// A warp stores its own rows.
__device__ __forceinline__ void finish(const ForwardParams &params, const WorkTile &tile, unsigned smem,
                                       const Rows &rows) {
  const Sequence &sequence = params.sequence;
  const int lane = rows.lane;
  const unsigned sO = smem + (rows.first_row - tile.q0) * O_STRIDE;
  __syncthreads();  // Q, K, V are no longer needed; wait_copies<0> has been passed or nothing was loaded
  #pragma unroll
  for (int m = 0; m < M_TILES; ++m) {
    #pragma unroll
    for (int h = 0; h < 2; ++h) {
      RowEnd end = end_row(rows.softmax, m, h, params.softmax.scale_log2);
      if (is_whole(tile.part)) end.normaliser *= add_sink(end.lse, params, tile.head);
      const float normaliser = end.normaliser * dropout_rescale(params.dropout) * factor_of(rows.values);
      const int row = m * 16 + h * 8 + lane / 4, i = rows.first_row + row;
      const long long in_all = row_of_part(params, tile.part, tile.batch, tile.head, i);
      if (lane % 4 == 0 && i < sequence.nq) store_lse(params, tile.part, in_all, end.lse);
      if (!is_whole(tile.part) && i < sequence.nq) {
        #pragma unroll
        for (int n = 0; n < O_TILES; ++n) {
          const Pair pair = columns_of(rows.rO[m][n / 2 * 2], second_of_two(rows.rO[m], n), h, n % 2, lane);
          const int column = n / 2 * 16 + pair.column;
          if (HEAD_DIM_V % 16 != 0 && column >= HEAD_DIM_V) continue;
          store_partial(params, tile.part, in_all, column, pair.first * normaliser, pair.second * normaliser);
        }
      }
      put_row(params, tile, rows, sO, m, h, normaliser);
    }
  }
  if (is_whole(tile.part)) end_rows(params, tile, rows, sO);
}

// ---- Q of a work tile to shared memory ---------------------------------------------------------------------------------
__device__ __forceinline__ void copy_queries(unsigned to, const ForwardParams &params, const WorkTile &tile) {
  copy_tile<BLOCK_M, D_PAD / CHUNK, HEAD_DIM / CHUNK, Q_STRIDE>(to, row_of(params.q, tile.batch, tile.head, tile.q0),
                                                         int(params.q.stride.row), params.sequence.nq - tile.q0);
}

// ---- the kernel ----------------------------------------------------------------------------------
extern "C" __global__ void __launch_bounds__(THREADS, CTAS_PER_SM)
fatune_kernel(const __grid_constant__ ForwardParams argument) {
  const ForwardParams &all = forward_of(argument);
  extern __shared__ __align__(128) unsigned char shared[];
  const unsigned smem = shared_address(shared);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  WorkTile tile = work_tile_at(all, first_work(all));
  const auto &params = scaled(argument, at_place(all, tile.place), tile.batch, tile.head, tile.kv_head, first_row_of(tile, warp));
  const Sequence &sequence = params.sequence;
  if (tile.q0 >= sequence.nq) return;  // of a block mask the last row of blocks may have fewer tiles; so may a list of them
  Rows rows;
  rows.lane = lane;
  rows.first_row = first_row_of(tile, warp);
  rows.own_keys = warp % KEY_WARPS * WARP_KEYS;
  rows.lanes = find_lanes(smem, warp, lane);
  rows.dropout = begin_dropout(params.dropout, sequence, tile.batch, tile.head, rows.first_row, lane);
  rows.softmax = begin_rows<M_TILES>();
  rows.values = value_scale(argument, params, tile.batch, tile.kv_head);
  rows.score = begin_score<M_TILES>(params, tile.batch, tile.head, rows.first_row, lane, params.softmax.scale);
  #pragma unroll
  for (int m = 0; m < M_TILES; ++m) {
    #pragma unroll
    for (int n = 0; n < O_TILES; ++n) rows.rO[m][n][0] = rows.rO[m][n][1] = rows.rO[m][n][2] = rows.rO[m][n][3] = 0.f;
  }

  const KeyRows gK = key_rows(params, params.k, tile.batch, tile.kv_head);
  const KeyRows gV = key_rows(params, params.v, tile.batch, tile.kv_head);
  auto load_k = [&](int key, int stage) {
    copy_keys<BLOCK_N, D_PAD / KV_CHUNK, HEAD_DIM / KV_CHUNK, K_STRIDE>(smem + SMEM_K + stage * K_STAGE, gK, key, sequence.nk);
  };
  auto load_v = [&](int key, int stage) {
    copy_keys<BLOCK_N, DV_PAD / KV_CHUNK, HEAD_DIM_V / KV_CHUNK, V_STRIDE>(smem + SMEM_V + stage * V_STAGE, gV, key, sequence.nk);
  };

  const Keys keys = find_keys(params, tile);
  if (is_missing(tile.part)) return;
  if (keys.steps > 0) {
    copy_queries(smem, params, tile);
    const Queries queries = keep_queries(rows.lanes.sQ);
    walk(rows, params, queries, keys, load_k, load_v);
  }
  finish(params, tile, smem, rows);
  put_together(params, tile, smem, threadIdx.x);
}

// ---- the list of work tiles: sequences are alike, and a kernel finds its tiles without one ------------------------------
