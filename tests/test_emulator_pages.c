/* test_emulator_pages.c: K and V in pages, on an emulated H200.
 * in -> out: request, config -> every row against float64; bugs in what finds a page, each of which
 * must be seen; tables that are wrong, each of which must be named. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/session.h"
#include "tests/emulator_lab.h"
#include "tests/suites.h"
#include "tuner/verify/problem.h"

#define MMA         "mma_forward block_m=64 block_n=32 warps=4 stages=2 ctas_per_sm=1"
#define WGMMA(more) "wgmma_forward block_m=128 block_n=64 stages=3 q_stages=1 lazy_rescale=1" more
#define WIDE        "wgmma_forward block_m=128 block_n=128 stages=2 q_stages=2 lazy_rescale=1"
#define FEW(more)                                                                                  \
  "wgmma_forward block_m=64 block_n=64 stages=2 q_stages=1 lazy_rescale=1 direct_store=1" more
#define SHARED(more) FEW(" split_keys=1" more)
#define FEW_MMA(more)                                                                              \
  "mma_forward block_m=16 block_n=64 warps=4 stages=2 key_warps=4 ctas_per_sm=1" more
#define SHARED_MMA(more) FEW_MMA(" split_keys=1" more)

/* Lengths that end beside the ends of tiles, empty ones, pages that several batch entries share and
 * pages that none uses, filled with NaN, come with every seed. */
static const struct {
  const char *request, *config;
} runs[] = {
    {"bf16 d64 hq2 b4 nq150 nk300 causal pages=1", MMA},
    {"fp16 d72 dv40 hq4 hkv2 b3 nq90 nk260 window@70,20 pages=4 dropout sinks",
     MMA " overlap_qk=1"},
    {"bf16 d16 hq8 hkv2 b5 nq3 nk500 causal pages=16 sinks", MMA " split_keys=1"},
    {"bf16 d40 b6 nq400 nk700 causal ragged pages=64", MMA},
    {"fp16 d64 hq2 b4 nq100 nk400 pages=16",
     "mma_forward block_m=64 block_n=48 warps=4 stages=1 ctas_per_sm=1"},
    {"bf16 d64 hq2 b4 nq300 nk400 causal pages=8", WIDE},
    {"fp16 d64 dv40 hq4 hkv2 b3 nq150 nk300 causal pages=64 sinks dropout",
     WGMMA(" direct_store=1 overlap_tiles=1")},
    {"bf16 d40 b5 nq300 nk500 causal=top-left window@90,-1 pages=32", WGMMA(" ascending_keys=1")},
    {"bf16 d128 hq8 hkv2 b3 nq3 nk700 causal pages=16 sinks", FEW(" pack_gqa=1 split_keys=1")},
    {"bf16 d64 hq8 hkv2 b3 nq5 nk700 window@100,0 pages=128", FEW(" pack_gqa=1")},
    {"fp16 d64 dv40 hq4 hkv2 b5 nq500 nk700 causal ragged pages=16 sinks dropout",
     WGMMA(" direct_store=1 overlap_tiles=1")},
    {"bf16 d64 hq2 b7 nq500 nk900 ragged pages=256", WGMMA("")},
    {"bf16 d72 hq8 hkv2 b3 nq300 nk500 causal pages=64 sinks", WGMMA(" multicast=2")},
    {"fp16 d128 hq4 hkv2 b5 nq500 nk700 causal ragged pages=16 sinks", WIDE}, /* two loaders */
    {"fp16 d96 dv40 hq4 hkv2 b3 nq300 nk900 pages=8 window@200,30", WGMMA(" direct_store=1")},
    {"bf16 d128 hq4 hkv2 b3 nq300 nk700 causal pages=8", WIDE " multicast=2"}, /* both */
    {"fp16 d64 dv72 hq8 hkv2 b5 nq3 nk700 causal pages=256", FEW_MMA(" pack_gqa=1")},
    {"bf16 d128 hq6 hkv2 b3 nq200 nk700 window@300,20 pages=16", WIDE " multicast=2"},
    {"fp16 d64 hq4 hkv1 b5 nq9 nk900 pages=256 dropout", WGMMA(" multicast=2")},
    {"bf16 d16 hq2 b3 nq100 nk2500 causal pages=16", /* several windows of the table */
     "wgmma_forward block_m=64 block_n=80 stages=2 q_stages=1 lazy_rescale=1"},
    {"bf16 d16 b70 hq2 nq9 nk1500 pages=8", FEW(" ascending_keys=1")},
    {"bf16 d16 hq2 b72 nq2 nk200 pages=16", FEW("")}, /* more work tiles than blocks */
    /* Equal shares of steps: in each several walks, or a part of one. */
    {"bf16 d16 hq8 hkv4 b70 nq3 nk600 causal pages=64 sinks", SHARED(" pack_gqa=1")},
    {"fp16 d32 dv16 hq2 b3 nq150 nk4000 window@900,30 pages=64 dropout", SHARED("")},
    {"bf16 d16 hq6 hkv2 b40 nq70 nk300 causal=top-left pages=8", SHARED(" overlap_tiles=1")},
    {"bf16 d16 b2 nq1 nk9000 pages=16", SHARED("")},
    {"bf16 d40 hq2 b3 nq200 nk900 pages=32",
     WGMMA(" direct_store=1 split_keys=1")}, /* two warpgroups */
    /* The same of sequences of different lengths. */
    {"bf16 d16 hq8 hkv4 b70 nq300 nk9000 causal ragged pages=64 sinks", SHARED(" pack_gqa=1")},
    {"fp16 d32 dv16 hq6 hkv2 b3 nq150 nk4000 window@900,30 ragged pages=16 dropout",
     SHARED(" pack_gqa=1")},
    {"bf16 d40 hq2 b5 nq700 nk900 ragged pages=32",
     WGMMA(" direct_store=1 overlap_tiles=1 split_keys=1")},
    {"e4m3 d32 hq4 hkv2 b5 nq300 nk900 causal ragged pages=32",
     "wgmma_forward block_m=64 block_n=64 stages=2 q_stages=1 lazy_rescale=1 integer_max=1 "
     "direct_store=1 split_keys=1"},
    {"bf16 d16 b2 nq2 nk9000 ragged pages=16", SHARED("")},
    /* Prompts alone: whole walks. */
    {"bf16 d16 hq16 hkv8 b30 nq4000 nk4500 causal ragged pages=64 sinks", SHARED(" pack_gqa=1")},
    /* The same by mma.sync, with warps that share their rows, and with rows of their own. */
    {"bf16 d16 hq8 hkv4 b70 nq3 nk600 causal pages=64 sinks", SHARED_MMA(" pack_gqa=1")},
    {"bf16 d64 hq8 hkv2 b19 nq1 nk3000 pages=16 kv=e4m3", SHARED_MMA(" pack_gqa=1")},
    {"fp32 d32 dv16 hq2 b40 nq5 nk700 window@300,2 pages=1 dropout", SHARED_MMA("")},
    {"fp16 d32 dv16 hq2 b5 nq150 nk4000 window@900,30 pages=64 dropout", MMA " split_keys=1"},
    {"bf16 d16 hq6 hkv2 b40 nq70 nk300 causal=top-left pages=8 sinks",
     "mma_forward block_m=64 block_n=48 warps=4 stages=1 split_keys=1 ctas_per_sm=1"},
    {"bf16 d16 b2 nq1 nk9000 pages=16", SHARED_MMA("")},
};

START_TEST(every_row_is_right) {
  const size_t number = EMULATOR_CHOOSE(_i, runs);
  emulator_row_by_row(runs[number].request, (enum ft_layout)(number % 3), 0, runs[number].config);
}
END_TEST

#define SHARES  "bf16 d16 hq4 hkv2 b30 nq20 nk600 causal pages=16"
#define MANY    "bf16 d16 hq2 b70 nq20 nk300 pages=16"
#define RAGGED  "bf16 d16 hq4 hkv2 b30 nq300 nk9000 causal ragged pages=16"
#define PROMPTS "bf16 d16 hq8 hkv8 b20 nq4000 nk4500 causal ragged pages=64"
#define PACKED  SHARED(" pack_gqa=1")
#define CAUSAL  "bf16 d64 hq4 hkv2 b4 nq70 nk300 causal pages=16"
#define WIDER   "bf16 d72 hq4 hkv2 b4 nq70 nk300 causal pages=16" /* two panels: two loaders */
#define LONG    "bf16 d16 hq2 b3 nq70 nk1900 causal pages=16"

static const struct {
  const char *file, *piece, *other, *request, *config;
} bugs[] = {
    /* Rows of a page behind the last key. */
    {"parts/rows_of_keys_paged.cu.in", "min(max(nk - row - done + in_page, 0), PAGE)", "PAGE",
     CAUSAL, WGMMA("")},
    {"parts/rows_of_keys_paged.cu.in", "head * slots.head", "0", CAUSAL, WGMMA("")},
    {"parts/rows_of_keys_paged.cu.in", "batch * params.pages.batch", "0", CAUSAL, WGMMA("")},
    {"parts/rows_of_keys_paged.cu.in", "TOGETHER < PAGE ? row % PAGE : 0", "0",
     "bf16 d64 hq4 b3 nq70 nk300 pages=256", WGMMA("")},
    {"parts/rows_of_keys_paged.cu.in", "row + OWN_ROWS <= nk", "true", CAUSAL, WGMMA("")},
    {"parts/rows_of_keys_paged.cu.in", "/ PAGE + first;", "/ PAGE;",
     "bf16 d64 hq2 b3 nq70 nk300 causal pages=8", WIDE},
    {"parts/produce_paged.cu.in", "walk, left - 1)", "walk, left)", LONG, WGMMA("")},
    {"parts/produce_paged.cu.in", "ASCENDING ? 1 : -1", "0", LONG, WGMMA("")},
    {"parts/produce_paged.cu.in", "windows.has_ahead = false;", "", LONG, WGMMA("")},
    {"parts/produce_paged.cu.in", "ahead, window_of_step(params, ahead, ahead.steps - 1))",
     "ahead, 0)", "bf16 d16 hq2 b72 nq2 nk1500 pages=16", FEW("")},
    /* Shares of a tile's boxes. */
    {"parts/produce_paged.cu.in", "OWN_ROWS, share * OWN_BOXES)", "OWN_ROWS, 0)", WIDER, WGMMA("")},
    {"parts/rows_of_keys_paged.cu.in", "first = share * OWN_BOXES + box", "first = box", WIDER,
     WGMMA("")},
    {"parts/produce_paged.cu.in", "v_key = key;", "", WIDER, WGMMA("")},
    {"parts/produce_paged.cu.in", "v_nk = walk.tile.place.nk;", "", WIDER, WGMMA("")},
    /* Blocks of two heads that load halves for both. */
    {"parts/pairs_of_heads.cu.in", "min(member, params.sequence.group - 1)", "member",
     "bf16 d64 hq3 hkv1 b2 nq70 nk300 causal pages=16", WGMMA(" multicast=2")},
    {"parts/produce_paged.cu.in", "key + own, walk", "key, walk", CAUSAL, WGMMA(" multicast=2")},
    {"parts/rows_of_keys_paged.cu.in", "32 / (BOXES * CLUSTER)", "32 / BOXES", LONG,
     WGMMA(" multicast=2")},
    {"parts/key_rows_paged.cu.in", "(long long)(j % PAGE) * rows.row", "0", CAUSAL, MMA},
    {"parts/key_rows_paged.cu.in", "batch * params.pages.batch", "0", CAUSAL, MMA},
    {"parts/key_rows_paged.cu.in", "r < nk - key &&", "", CAUSAL, MMA},
    {"parts/sequence_paged.cu.in", "own.visibility.last_diagonal = place.last_diagonal;", "",
     CAUSAL, MMA},
    {"parts/sequence_paged.cu.in", "own.sequence.nk = place.nk;", "", CAUSAL, MMA},
    {"parts/sequence_paged.cu.in", "query_of(params.sequence, params.sequence.nq)",
     "params.sequence.nq", "bf16 d64 hq8 hkv2 b3 nq9 nk300 causal pages=16", FEW(" pack_gqa=1")},
    /* The shares of blocks. */
    {"parts/stream_walks.cu.in", "lower += lane & lanes ? others : 0;", "", SHARES, SHARED("")},
    {"parts/stream_walks.cu.in", "before += together;", "", MANY, SHARED("")},
    {"parts/stream_walks.cu.in", "head = step / of_head;", "head = 0;", SHARES, SHARED("")},
    {"parts/stream_walks.cu.in", "in_walk : 0", "0 : 0", SHARES, SHARED("")},
    {"parts/stream_walks.cu.in", "cursor.walk + 1 < count_walks(params)", "true", SHARES,
     SHARED("")},
    {"parts/stream_walks.cu.in", "{0, cursor.head + 1, 0, left}", "{0, cursor.head, 0, left}",
     SHARES, SHARED("")},
    {"parts/stream_walks.cu.in", " - cursor.begin);", ");", SHARES, SHARED("")},
    {"parts/schedule_stream.cu.in", "if (unsigned(last.begin) >= shares.steps)", "if (false)",
     "bf16 d16 b2 nq20 nk9000 pages=16", SHARED("")},
    {"parts/schedule_stream.cu.in", "number == 0, i)", "false, i)", SHARES, SHARED("")},
    {"parts/schedule_stream.cu.in", "(after + shares.steps - 1)", "after", SHARES, SHARED("")},
    {"parts/key_parts_stream.cu.in", "params.parts.rows / 2", "0", SHARES, SHARED("")},
    {"parts/key_parts_stream.cu.in", "min(part.steps, keys.steps - part.begin)",
     "keys.steps - part.begin", SHARES, SHARED("")},
    {"mma_forward.cu.in", "__syncthreads();  // nobody reads", "//", SHARES, MMA " split_keys=1"},
    {"mma_forward.cu.in", "__syncthreads();  // nobody reads", "//", SHARES, SHARED_MMA("")},
    {"mma_forward.cu.in", "cursor = next_work(all, cursor)", "cursor.left = 0", SHARES,
     SHARED_MMA("")},
    {"parts/key_parts_stream.cu.in", "begins ? params.parts.rows / 2 : 0", "0", SHARES,
     MMA " split_keys=1"},
    /* The same of sequences of different lengths. */
    {"parts/stream_walks_ragged.cu.in", "params.ragged.numbers] *", "0] *", RAGGED, PACKED},
    {"parts/stream_walks_ragged.cu.in", "<= wanted", "< wanted", RAGGED, PACKED},
    {"parts/stream_walks_ragged.cu.in", "(left + 31) / 32", "left", RAGGED, PACKED},
    {"parts/stream_walks_ragged.cu.in", "min(apart, left - last * apart)", "1", RAGGED, PACKED},
    {"parts/stream_walks_ragged.cu.in", "int(in_walk / steps)", "0", RAGGED, PACKED},
    {"parts/stream_walks_ragged.cu.in", "int(in_walk % steps)", "0", RAGGED, PACKED},
    {"parts/stream_walks_ragged.cu.in", " - cursor.begin);", ");", RAGGED, PACKED},
    {"parts/work_list_steps.cu.in", "all + lower;", "all + lower + steps;", RAGGED, PACKED},
    {"parts/work_list_steps.cu.in", ", pack_bits_of(params.sequence))", ")", RAGGED, PACKED},
    {"parts/stream_walks_ragged.cu.in", "round * gridDim.x + ", "", PROMPTS, SHARED("")},
    {"parts/stream_walks_ragged.cu.in", "gridDim.x - 1 - blockIdx.x", "0", PROMPTS, SHARED("")},
    {"parts/stream_walks_ragged.cu.in", "cursor.left + 1)", "cursor.left + 2)", PROMPTS,
     SHARED("")},
    {"parts/stream_walks_ragged.cu.in", "int(found.head)", "0", PROMPTS, SHARED("")},
    {"parts/work_list_steps.cu.in", "entry_of_number(params, number);\n  }\n  return",
     "entry_of_number(params, 0);\n  }\n  return", PROMPTS, SHARED("")},
    {"parts/work_list_steps.cu.in", "ragged.numbers - tiles", "ragged.numbers - tiles - 1", PROMPTS,
     SHARED("")},
    {"parts/work_list_steps.cu.in", "sums[thread] = last - own", "sums[thread] = last", PROMPTS,
     SHARED("")},
    {"parts/schedule_stream.cu.in", "if (whole_walks(params) > 0) return {};", "", PROMPTS,
     SHARED("")},
    {"parts/merge_parts.cu.in", "at_place(all_rows, tile.place)", "all_rows", RAGGED, PACKED},
    {"parts/rows_ragged_packed.cu.in", "place.first_q + ", "", RAGGED, PACKED},
    {"parts/sequence_search.cu.in", "entry.nq <<= pack_bits;", "", RAGGED, PACKED},
    {"parts/sequence_ragged.cu.in", "query_of(params.sequence, i);", "i;", RAGGED, PACKED},
    {"parts/sequence_search.cu.in", "ragged.starts_k ? ragged.starts_k[low] : 0",
     "ragged.starts_k[low]", "bf16 d64 b6 nq300 nk400 ragged pages=16", MMA},
};

/* Not every seed has the lengths that show a bug. */
START_TEST(bugs_are_seen) {
  enum { TRIES = 12 };
  const size_t number = EMULATOR_CHOOSE(_i, bugs);
  const struct planted planted =
      emulator_plant(bugs[number].file, bugs[number].piece, bugs[number].other);
  setenv("FATUNE_EMULATOR_STEPS", "100000000", 1); /* some walk without end */
  const struct ft_problem_options options =
      emulator_options(bugs[number].request, FT_LAYOUT_PADDED, emulator_seed());
  ck_assert_msg(emulator_sees(&planted, &options, bugs[number].config, TRIES), "'%s' is not seen",
                bugs[number].other);
  emulator_unplant(&planted);
}
END_TEST

START_TEST(every_bug_can_be_planted) {
  EMULATOR_EXPECT_PIECES(bugs);
}
END_TEST

/* ---- what only the device sees ---- */

static fatune_session *session;
static fatune_plan *plan;
static struct ft_problem *problem;
static int32_t lengths[3], numbers[3][64];
static fatune_arguments arguments;

/* A run with the lengths and the table of the host, whose memory an emulated GPU's is. */
static void expect(const char *words) {
  const int status = fatune_plan_run(plan, &arguments, NULL);
  if (!words) {
    ck_assert_msg(status == FATUNE_OK, "%s", fatune_detail());
    return;
  }
  ck_assert_int_eq(status, FATUNE_E_ARGUMENT);
  ck_assert_msg(strstr(fatune_detail(), words) != NULL, "'%s' lacks '%s'", fatune_detail(), words);
}

static void put(const void *device, const void *from, size_t bytes) {
  ck_assert_int_eq(session->driver.copy_to_device((uintptr_t)device, from, bytes, NULL), 0);
}

static void get(void *to, const void *device, size_t bytes) {
  ck_assert_int_eq(session->driver.copy_to_host(to, (uintptr_t)device, bytes, NULL), 0);
}

START_TEST(wrong_tables_are_named) {
  const char *const request = "bf16 d64 hq2 b3 nq20 nk100 pages=16";
  struct ft_problem_options options = emulator_options(request, FT_LAYOUT_BSHD, emulator_seed());
  options.alike = true;
  session = emulator_open("h200", NULL);
  plan = emulator_plan(session, request, MMA);
  ck_assert_msg(ft_problem_make(&problem, session, &options) == FT_OK, "%s", ft_detail());
  arguments = *ft_problem_arguments(problem);
  const fatune_page_table *const table = &arguments.page_table;
  const size_t row = (size_t)table->columns * sizeof(int32_t);
  ck_assert_uint_le(row, sizeof numbers[0]);
  get(lengths, arguments.seqused_k, sizeof lengths);
  for (int n = 0; n < 3; n++) get(numbers[n], table->data + n * table->stride_batch, row);
  expect(NULL);

  const int32_t too_many = 101, below = -1, beyond = (int32_t)table->pages;
  put(arguments.seqused_k + 1, &too_many, sizeof too_many);
  expect("seqused_k[1] is 101; allowed: 0 .. 100, the keys that batch entry 1 may have");
  put(arguments.seqused_k + 1, &below, sizeof below);
  expect("seqused_k[1] is -1");
  put(arguments.seqused_k, lengths, sizeof lengths);
  const int32_t *const place = table->data + 2 * table->stride_batch + 6;
  put(place, &beyond, sizeof beyond);
  expect("in column 6 of batch entry 2; allowed: 0 .. ");
  put(place, &below, sizeof below);
  expect("page -1 in column 6 of batch entry 2");
  const int32_t fewer = 96; /* of which none is in that page */
  put(arguments.seqused_k + 2, &fewer, sizeof fewer);
  expect(NULL);
  ft_problem_free(problem);
  fatune_plan_free(plan);
  fatune_session_close(session);
}
END_TEST

/* Two runs with a workspace give the same bits. In a run without one each block computes the walks
 * that begin in its share to their end, so that sums differ by rounding. */
START_TEST(without_a_workspace_walks_stay_whole) {
  enum { ROWS = 40 * 20 * 4, DIM = 16 };
  static uint16_t o[3][ROWS * DIM];
  static _Alignas(256) unsigned char lent[1 << 22];
  const char *const request = "bf16 d16 hq4 hkv2 b40 nq20 nk600 causal pages=16";
  const char *const configs[] = {SHARED(""), MMA " split_keys=1"};
  const struct ft_problem_options options =
      emulator_options(request, FT_LAYOUT_BSHD, emulator_seed());
  session = emulator_open("h200", NULL);
  plan = emulator_plan(session, request, configs[_i]);
  ck_assert_msg(ft_problem_make(&problem, session, &options) == FT_OK, "%s", ft_detail());
  arguments = *ft_problem_arguments(problem);
  size_t bytes;
  ck_assert_int_eq(fatune_plan_workspace_for(plan, &arguments, &bytes), FATUNE_OK);
  ck_assert_uint_gt(bytes, 0);
  ck_assert_uint_le(bytes, sizeof lent);
  for (int n = 0; n < 3; n++) {
    memset(o[n], 0xff, sizeof o[n]);
    put(arguments.o.data, o[n], sizeof o[n]);
    memset(lent, 0xff, sizeof lent);
    arguments.workspace = n < 2 ? lent : NULL;
    expect(NULL);
    get(o[n], arguments.o.data, sizeof o[n]);
  }
  ck_assert_mem_eq(o[0], o[1], sizeof o[0]);
  for (int i = 0; i < ROWS * DIM; i++) {
    const double shared = float_of((uint32_t)o[0][i] << 16),
                 whole = float_of((uint32_t)o[2][i] << 16);
    ck_assert_double_eq_tol(shared, whole, 1e-2 * (fabs(shared) + 1));
  }
  ft_problem_free(problem);
  fatune_plan_free(plan);
  fatune_session_close(session);
}
END_TEST

Suite *make_emulator_pages_suite(void) {
  Suite *const suite = suite_create("emulator_pages");
  TCase *const tests = tcase_create("pages");
  tcase_set_timeout(tests, 300);
  tcase_add_loop_test(tests, every_row_is_right, 0, EMULATOR_RUNS(runs));
  tcase_add_test(tests, wrong_tables_are_named);
  tcase_add_loop_test(tests, without_a_workspace_walks_stay_whole, 0, 2);
  tcase_add_test(tests, every_bug_can_be_planted);
  tcase_add_loop_test(tests, bugs_are_seen, 0, EMULATOR_RUNS(bugs));
  suite_add_tcase(suite, tests);
  return suite;
}
