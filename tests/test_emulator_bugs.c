/* test_emulator_bugs.c: bugs planted into copies of the templates, each caught with its place.
 * in -> out: an edit of a template -> the fault of the run, in words, with the line of the
 * template, block, warp and lane; or a wrong result that is explained by row and key. The same
 * request runs through without the edit. An edit that no longer applies is a failure. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/emulator_lab.h"
#include "tests/suites.h"

#define STAGED                                                                                     \
  "mma_forward block_m=128 block_n=32 warps=4 stages=2 q_in_regs=0 overlap_qk=0 draw_early=0 "     \
  "ctas_per_sm=1"
#define SINGLE                                                                                     \
  "mma_forward block_m=64 block_n=32 warps=4 stages=1 q_in_regs=0 overlap_qk=0 draw_early=0 "      \
  "ctas_per_sm=1"
#define OVERLAP                                                                                    \
  "mma_forward block_m=64 block_n=64 warps=4 stages=2 q_in_regs=0 overlap_qk=1 draw_early=0 "      \
  "ctas_per_sm=1"
#define Q_IN_REGS                                                                                  \
  "mma_forward block_m=64 block_n=32 warps=4 stages=2 q_in_regs=1 overlap_qk=0 draw_early=0 "      \
  "ctas_per_sm=1"

#define MAIN      "mma_forward.cu.in"
#define COPY      "parts/copy_tile.cu.in"
#define LOOP      "parts/mma_loop_staged.cu.in"
#define PRODUCTS  "parts/mma_tile.cu.in"
#define FRAGMENTS "parts/fragments.cu.in"
#define TILE      "parts/work_tile.cu.in"
#define VISIBLE   "parts/visibility.cu.in"
#define STORE     "parts/store_rows.cu.in"
#define SOFTMAX   "parts/softmax.cu.in"
#define QUAD      "parts/quad.cu.in"
#define EPILOGUE  "parts/epilogue_mma.cu.in"
#define LOOP_WAIT "    wait_copies<STAGES - 2>();\n"

/* text NULL: any line of the file. */
struct place {
  const char *file, *text; /* the template line that holds the text */
};

struct bug {
  const char *name, *gpu, *request, *config;
  enum ft_layout layout;
  const char *file, *piece, *other; /* in this file the one becomes the other */
  struct place at, from; /* what the message points at, and one of the callers; or none */
  const char *words[2];
  bool plain; /* by a plain load or store, which the hooks see, but no sanitizer */
};

/* ---- faults ---- */

static const struct bug bugs[] = {
    {.name = "missing barrier",
     .file = LOOP,
     .piece = LOOP_WAIT "    __syncthreads();\n",
     .other = LOOP_WAIT "\n",
     .at = {FRAGMENTS, "ldmatrix_x4(r, "},
     .from = {LOOP, "gemm_qk(rS, queries, rows.dropout"},
     .words = {"reads shared memory at offset ", "nothing orders the two (race)"}},
    {.name = "missing barrier without cp.async",
     .gpu = "t4",
     .request = "fp16 d64 nq70",
     .config = SINGLE,
     .file = "parts/mma_loop_single.cu.in",
     .piece = "__syncthreads();  // V is there",
     .other = "// V is there",
     .at = {COPY, "copy_16(to_row"},
     .from = {"parts/mma_loop_single.cu.in", "load_k(key_of<BLOCK_N>(keys, step - 1), 0)"},
     .words = {"writes shared memory at offset ", "(race)"}},
    {.name = "missing barrier before the queries are overwritten",
     .config = Q_IN_REGS,
     .file = PRODUCTS,
     .piece = "  __syncthreads();\n  return queries;\n",
     .other = "\n  return queries;\n",
     .at = {FRAGMENTS, "ldmatrix_x4(r, "},
     .from = {MAIN, "keep_queries("},
     .words = {"reads shared memory at offset ", "(race)"}},
    {.name = "missing __syncwarp",
     .file = "parts/rows_of_o.cu.in",
     .piece = "  __syncwarp();\n",
     .other = "\n",
     .at = {STORE, "load_shared_16("},
     .from = {EPILOGUE, "end_rows(params"},
     .words = {"reads shared memory at offset ", "(race)"}},
    {.name = "missing wait",
     .file = LOOP,
     .piece = LOOP_WAIT,
     .other = "\n",
     .at = {FRAGMENTS, "ldmatrix_x4(r, "},
     .from = {LOOP, "gemm_qk(rS, queries, rows.dropout"},
     .words = {"the asynchronous copy of line ", "still under way: no wait orders it"}},
    {.name = "wait one group too short",
     .config = OVERLAP,
     .request = "bf16 d64 nq90 nk250",
     .file = "parts/mma_loop_overlap.cu.in",
     .piece = LOOP_WAIT,
     .other = "    wait_copies<STAGES - 1>();\n",
     .at = {FRAGMENTS, "ldmatrix_x4(r, "},
     .words = {"reads shared memory at offset ", "still under way: no wait orders it"}},
    {.name = "wait behind the barrier",
     .file = LOOP,
     .piece = LOOP_WAIT "    __syncthreads();\n",
     .other = "    __syncthreads();\n" LOOP_WAIT,
     .at = {FRAGMENTS, "ldmatrix_x4(r, "},
     .words = {"reads shared memory at offset ", NULL}},
    {.name = "copies without commit",
     .config = SINGLE,
     .file = "parts/mma_loop_single.cu.in",
     .piece = "    load_v(key, 0);\n    commit_copies();\n",
     .other = "    load_v(key, 0);\n\n",
     .at = {FRAGMENTS, "ldmatrix_x4_trans(r, "},
     .words = {"still under way: no wait orders it", NULL}},
    {.name = "wrong fragment index",
     .file = FRAGMENTS,
     .piece = "mma_m16n8k16(c, a, b[2 * n], b[2 * n + 1]);",
     .other = "mma_m16n8k16(c, a, b[2 * n], b[2 * n ^ 2]);",
     .at = {FRAGMENTS, "mma_m16n8k16(c, a, "},
     .from = {LOOP, "gemm_qk(rS, queries, rows.dropout"},
     .words = {"multiplies by a B that is no tile: at column 0, depth 8 stands K[batch ",
               ", not K["}},
    {.name = "fragments of other columns",
     .file = PRODUCTS,
     .piece = "load_fragment<Q_STRIDE>(rQ[m], queries.sQ, k, ",
     .other = "load_fragment<Q_STRIDE>(rQ[m], queries.sQ, k ^ 1, ",
     .at = {FRAGMENTS, "mma_m16n8k16(c, a, "},
     .words = {"multiplies columns that do not belong together: from Q[", "and from K["}},
    {.name = "out-of-bounds tail",
     .file = COPY,
     .piece = "r < rows_left &&",
     .other = "r <= rows_left &&",
     .at = {COPY, "copy_16(to_row"},
     .from = {LOOP, "load_k(key, ahead)"},
     .words = {"reads 16 bytes right past the end of ", "(rows 0 to 249)"}},
    {.name = "out-of-bounds tail of the output",
     .file = STORE,
     .piece = "if (row < rows) {",
     .other = "if (row <= rows) {",
     .at = {STORE, "store_global_16("},
     .from = {MAIN, "finish(params, tile"},
     .words = {"writes 16 bytes right past the end of O (rows 0 to 199)", NULL}},
    {.name = "plain store past the end",
     .file = EPILOGUE,
     .piece = "lane % 4 == 0 && i < sequence.nq",
     .other = "lane % 4 == 0",
     .at = {"parts/key_parts_none.cu.in", "params.lse[row] = lse"},
     .words = {"writes 4 bytes ", "past the end of LSE (rows 0 to 199)"},
     .plain = true},
    {.name = "read of padding",
     .request = "bf16 d72 nq100",
     .config = SINGLE,
     .layout = FT_LAYOUT_PADDED,
     .file = COPY,
     .piece = "chunk < VALID - c",
     .other = "chunk <= VALID - c",
     .at = {COPY, "copy_16(to_row"},
     .words = {"reads 16 bytes", "padding of Q"}},
    {.name = "head of another group",
     .request = "bf16 d64 nq100 hq4 hkv2",
     .file = TILE,
     .piece = "tile.head / params.sequence.group",
     .other = "tile.head",
     .at = {COPY, "copy_16(to_row"},
     .words = {"reads 16 bytes", "past the end of K"}},
    {.name = "misaligned vector",
     .file = STORE,
     .piece = "load_shared_16(r, from +",
     .other = "load_shared_16(r, 8 + from +",
     .at = {STORE, "load_shared_16("},
     .words = {"reads 16 bytes of shared memory at offset ", "which is no multiple of 16"}},
    {.name = "uninitialised accumulator",
     .file = MAIN,
     .piece = "rows.rO[m][n][0] = rows.rO[m][n][1] = rows.rO[m][n][2] = rows.rO[m][n][3] = 0.f;",
     .other = "(void)n;",
     .at = {SOFTMAX, NULL}, /* in one of two lines: a compiler may load both elements as one */
     .from = {LOOP, "update_max(rows.rO, "},
     .words = {"reads a variable that was never written", NULL},
     .plain = true},
    {.name = "uninitialised accumulator of a product",
     .file = PRODUCTS,
     .piece = "rS[m][n][0] = rS[m][n][1] = rS[m][n][2] = rS[m][n][3] = 0.f;",
     .other = "rS[m][n][0] = rS[m][n][1] = 0.f;",
     .at = {FRAGMENTS, "mma_m16n8k16(c, a, "},
     .words = {"uses accumulator c[2] of a product, a register that was never written", NULL}},
    {.name = "read of shared memory that was never written",
     .file = LOOP,
     .piece = "      load_k(key, ahead);\n",
     .other = "\n",
     .at = {FRAGMENTS, "ldmatrix_x4(r, "},
     .words = {"reads shared memory at offset ", "which was never written"}},
    {.name = "lane that misses a shuffle",
     .file = QUAD,
     .piece = "  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));",
     .other = "  if (threadIdx.x % 32 != 5) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));",
     .at = {QUAD, "x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1))"},
     .from = {LOOP, "update_max(rows.rO, "},
     .words = {"__shfl_xor_sync is for the whole warp, but lane 5 is at __shfl_xor_sync in line ",
               QUAD}},
    {.name = "early return of one lane",
     .file = MAIN,
     .piece = "  finish(params, tile,",
     .other = "  if (threadIdx.x == 37) return;\n  finish(params, tile,",
     .at = {EPILOGUE, "__syncthreads();  // Q, K, V"},
     .words = {"waits at barrier 0, but warp 1, lane 5 has ended", NULL}},
    {.name = "barrier in divergent code",
     .file = EPILOGUE,
     .piece = "  __syncthreads();  // Q, K, V",
     .other = "  if (lane < 16)\n    __syncthreads();\n  else\n    __syncthreads();  // Q, K, V",
     .at = {EPILOGUE, "__syncthreads();"},
     .words = {"is a barrier of the whole block, but warp ", "is at barrier 0 in line "}},
    {.name = "loop without an end",
     .file = LOOP,
     .piece = "for (int step = keys.steps - 1; step >= 0; --step)",
     .other = "for (int step = keys.steps - 1; step >= 0; step += 0)",
     /* Where the count runs out, in the loop or in what it calls: either way it is named. */
     .words = {"does not end: the block has taken 2000000 steps", "mma_loop_staged.cu.in:"}},
};

static struct ft_problem_options problem_of(const struct bug *bug) {
  struct ft_problem_options options = {
      .layout = bug->layout, .seed = emulator_seed(), .want_lse = true};
  const char *const request = bug->request ? bug->request : "bf16 d64 hq2 nq200 nk250";
  ck_assert_msg(ft_request_parse(&options.request, request) == FT_OK, "%s", ft_detail());
  return options;
}

/* With the templates of this folder, or with those built in. */
static void run_with(struct emulator_run *run, const struct bug *bug, const char *templates) {
  const struct ft_problem_options options = problem_of(bug);
  fatune_session *const session = emulator_open(bug->gpu ? bug->gpu : "a100", templates);
  emulator_run(run, session, &options, bug->config ? bug->config : STAGED);
  fatune_session_close(session);
}

static void expect_in(const struct bug *bug, const char *message, const char *part) {
  emulator_expect_words(bug->name, message, &part, 1);
}

static long long number_after(const struct bug *bug, const char *message, const char *part) {
  expect_in(bug, message, part);
  const char *const digits = strstr(message, part) + strlen(part);
  ck_assert_msg(*digits >= '0' && *digits <= '9', "%s: no number behind \"%s\" in: %s", bug->name,
                part, message);
  return strtoll(digits, NULL, 10);
}

static void expect_place(const struct bug *bug, const char *message, const char *before,
                         const struct planted *planted, const struct place *place) {
  char text[160];
  if (!place->file) return;
  if (place->text) {
    const int line = emulator_line_of(planted, place->file, place->text);
    (void)snprintf(text, sizeof text, "(%s:%d)%s", place->file, line, before);
  } else {
    (void)snprintf(text, sizeof text, "(%s:", place->file);
  }
  expect_in(bug, message, text);
}

static void expect_fault(const struct bug *bug, const struct emulator_run *run,
                         const struct planted *planted) {
  emulator_expect_fault(bug->name, run);
  ck_assert(number_after(bug, run->fault, "fatune_kernel, line ") > 0);
  ck_assert(number_after(bug, run->fault, "), block ") >= 0);
  ck_assert(number_after(bug, run->fault, ", warp ") < 8);
  ck_assert(number_after(bug, run->fault, ", lane ") < 32);
  expect_place(bug, run->fault, ", block ", planted, &bug->at);
  expect_place(bug, run->fault, "", planted, &bug->from);
  emulator_expect_words(bug->name, run->fault, bug->words, 2);
}

START_TEST(planted_bugs_are_caught_where_they_are) {
  const size_t number = EMULATOR_CHOOSE(_i, bugs);
  const struct bug *const bug = &bugs[number];
  struct emulator_run run;
  setenv("FATUNE_EMULATOR_STEPS", "2000000", 1);
  if (bug->plain) setenv("FATUNE_EMULATOR_HOOKS", "1", 1);
  const struct planted planted = emulator_plant(bug->file, bug->piece, bug->other);
  run_with(&run, bug, planted.folder);
  expect_fault(bug, &run, &planted);
  emulator_run_free(&run);
  emulator_unplant(&planted);
}
END_TEST

/* ---- wrong results ---- */

static const struct bug wrong_results[] = {
    {.name = "wrong mask edge",
     .request = "bf16 d64 nq100 causal",
     .file = VISIBLE,
     .piece = "if (n * 8 >= end ||",
     .other = "if (n * 8 > end ||"},
    {.name = "exchanged fragments of P",
     .file = "parts/p_fragments.cu.in",
     .piece = "rS[m][2 * k + i / 2] + 2 * (i % 2)",
     .other = "rS[m][2 * k + i % 2] + 2 * (i / 2)"},
    {.name = "last step lost",
     .file = LOOP,
     .piece = "step >= 0; --step",
     .other = "step > 0; --step",
     .words = {"keys 0 to 31 are missing", NULL}},
};

/* "Weights: row 66 of batch 0, head 0 gives key 67 ..." */
static void expect_row_and_key(const struct bug *bug, const struct emulator_run *run) {
  ck_assert_ptr_nonnull(run->explanation.data);
  const long long row = number_after(bug, run->explanation.data, "Weights: row ");
  const long long key = number_after(bug, run->explanation.data, " gives key ");
  if (bug == &wrong_results[0]) /* the first key that the row must not see */
    ck_assert_msg(key == row + 1, "%s", run->explanation.data);
  emulator_expect_words(bug->name, run->explanation.data, bug->words, 2);
}

START_TEST(wrong_results_are_explained) {
  const size_t number = EMULATOR_CHOOSE(_i, wrong_results);
  const struct bug *const bug = &wrong_results[number];
  struct emulator_run run;
  const struct planted planted = emulator_plant(bug->file, bug->piece, bug->other);
  run_with(&run, bug, planted.folder);
  emulator_expect_wrong(bug->name, &run);
  expect_row_and_key(bug, &run);
  emulator_run_free(&run);
  emulator_unplant(&planted);
}
END_TEST

/* ---- no bug ---- */

static void expect_right(const struct bug *bug, const char *templates) {
  struct emulator_run run;
  run_with(&run, bug, templates);
  emulator_expect_right(bug->name, &run);
  emulator_run_free(&run);
}

/* The kernels that the bugs are planted into, as they are; and from a copy of the templates. */
START_TEST(sound_kernels_pass) {
  const size_t count = sizeof bugs / sizeof *bugs;
  for (size_t i = 0; i < count; i++) {
    const bool same = i > 0 && !bugs[i].request && !bugs[i].config && !bugs[i].gpu;
    if (!same) expect_right(&bugs[i], NULL);
  }
  expect_right(&wrong_results[0], NULL);
  const struct planted planted =
      emulator_plant(VISIBLE, "if (n * 8 >= end ||", "if (n * 8 >= end ||");
  expect_right(&wrong_results[0], planted.folder);
  emulator_unplant(&planted);
}
END_TEST

START_TEST(every_bug_can_be_planted) {
  EMULATOR_EXPECT_PIECES(bugs);
  EMULATOR_EXPECT_PIECES(wrong_results);
  for (size_t n = 0; n < EMULATOR_COUNT(bugs); n++) {
    const struct place places[] = {bugs[n].at, bugs[n].from};
    for (int i = 0; i < 2; i++)
      if (places[i].text && !strstr(bugs[n].other, places[i].text))
        emulator_expect_piece(places[i].file, places[i].text, false);
  }
}
END_TEST

Suite *make_emulator_bugs_suite(void) {
  Suite *const suite = suite_create("emulator_bugs");
  TCase *const tests = tcase_create("bugs");
  tcase_set_timeout(tests, 300);
  tcase_add_test(tests, every_bug_can_be_planted);
  tcase_add_loop_test(tests, planted_bugs_are_caught_where_they_are, 0, EMULATOR_RUNS(bugs));
  tcase_add_loop_test(tests, wrong_results_are_explained, 0, EMULATOR_RUNS(wrong_results));
  tcase_add_test(tests, sound_kernels_pass);
  suite_add_tcase(suite, tests);
  return suite;
}
