/* test_interface.c: callers that were built with another version of fatune.h.
 * in -> out: structs of version 0.1's layout, and larger ones -> what this version's give.
 * The layouts below are frozen: they are what programs in use were compiled with. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/status.h"
#include "runtime/session.h"
#include "runtime/sized_struct.h"
#include "tests/fake_lab.h"
#include "tests/suites.h"

struct old_session_options {
  size_t size;
  int device;
  const char *cache_dir;
  const char *system_path;
  const char *template_dir;
  int memory_only;
  int compile;
  void (*log)(void *payload, const char *message);
  void *payload;
  const char *emulate;
};

struct old_request {
  size_t size;
  int pass;
  int dtype;
  int head_dim;
  int head_dim_v;
  int causal;
  int dropout;
  int mask_rows;
  int mask_cols;
  int deterministic;
  int64_t batch;
  int heads_q;
  int heads_kv;
  int64_t seqlen_q;
  int64_t seqlen_k;
  double mask_density;
};

struct old_mask_options {
  size_t size;
  const uint8_t *blocks;
  int on_device;
  int mask_rows, mask_cols;
  int64_t batch;
  int heads;
  int64_t seqlen_q, seqlen_k;
};

struct old_tensor {
  void *data;
  int64_t stride_batch;
  int64_t stride_seq;
  int64_t stride_head;
};

struct old_arguments {
  size_t size;
  struct old_tensor q, k, v, o;
  float *lse;
  int64_t batch;
  int heads_q, heads_kv;
  int64_t seqlen_q, seqlen_k;
  float scale;
  float dropout;
  uint64_t seed, offset;
  const uint64_t *seed_device, *offset_device;
  const void *mask;
  void *workspace;
  struct old_tensor dout, dq, dk, dv;
  const float *dlse;
};

struct old_tune_options {
  size_t size;
  int if_missing;
  double budget_seconds;
  int jobs;
  void (*progress)(void *payload, int done, int total, double best_us);
  void *payload;
};

static struct fake_lab lab;

static void set_up(void) {
  use_fake_nvrtc();
  lab = fake_lab_open();
}

static void tear_down(void) {
  fake_lab_close(&lab);
}

/* ---- layouts ---- */

START_TEST(structs_begin_as_they_did) {
#define SAME_SIZE(type, size) ck_assert_uint_eq(sizeof(struct old_##type), size)
  SAME_SIZE(session_options, 72);
  SAME_SIZE(request, 88);
  SAME_SIZE(mask_options, 64);
  SAME_SIZE(tensor, 32);
  SAME_SIZE(arguments, 368);
  SAME_SIZE(tune_options, 48);
  ck_assert_uint_eq(sizeof(fatune_tensor),
                    sizeof(struct old_tensor)); /* has no size, cannot grow */
#define SAME_PLACE(type, field)                                                                    \
  ck_assert_uint_eq(offsetof(fatune_##type, field), offsetof(struct old_##type, field))
  SAME_PLACE(session_options, device);
  SAME_PLACE(session_options, cache_dir);
  SAME_PLACE(session_options, system_path);
  SAME_PLACE(session_options, template_dir);
  SAME_PLACE(session_options, memory_only);
  SAME_PLACE(session_options, compile);
  SAME_PLACE(session_options, log);
  SAME_PLACE(session_options, payload);
  SAME_PLACE(session_options, emulate);
  SAME_PLACE(request, pass);
  SAME_PLACE(request, dtype);
  SAME_PLACE(request, head_dim);
  SAME_PLACE(request, head_dim_v);
  SAME_PLACE(request, causal);
  SAME_PLACE(request, dropout);
  SAME_PLACE(request, mask_rows);
  SAME_PLACE(request, mask_cols);
  SAME_PLACE(request, deterministic);
  SAME_PLACE(request, batch);
  SAME_PLACE(request, heads_q);
  SAME_PLACE(request, heads_kv);
  SAME_PLACE(request, seqlen_q);
  SAME_PLACE(request, seqlen_k);
  SAME_PLACE(request, mask_density);
  SAME_PLACE(mask_options, blocks);
  SAME_PLACE(mask_options, on_device);
  SAME_PLACE(mask_options, mask_rows);
  SAME_PLACE(mask_options, mask_cols);
  SAME_PLACE(mask_options, batch);
  SAME_PLACE(mask_options, heads);
  SAME_PLACE(mask_options, seqlen_q);
  SAME_PLACE(mask_options, seqlen_k);
  SAME_PLACE(arguments, q);
  SAME_PLACE(arguments, k);
  SAME_PLACE(arguments, v);
  SAME_PLACE(arguments, o);
  SAME_PLACE(arguments, lse);
  SAME_PLACE(arguments, batch);
  SAME_PLACE(arguments, heads_q);
  SAME_PLACE(arguments, heads_kv);
  SAME_PLACE(arguments, seqlen_q);
  SAME_PLACE(arguments, seqlen_k);
  SAME_PLACE(arguments, scale);
  SAME_PLACE(arguments, dropout);
  SAME_PLACE(arguments, seed);
  SAME_PLACE(arguments, offset);
  SAME_PLACE(arguments, seed_device);
  SAME_PLACE(arguments, offset_device);
  SAME_PLACE(arguments, mask);
  SAME_PLACE(arguments, workspace);
  SAME_PLACE(arguments, dout);
  SAME_PLACE(arguments, dq);
  SAME_PLACE(arguments, dk);
  SAME_PLACE(arguments, dv);
  SAME_PLACE(arguments, dlse);
  SAME_PLACE(tune_options, if_missing);
  SAME_PLACE(tune_options, budget_seconds);
  SAME_PLACE(tune_options, jobs);
  SAME_PLACE(tune_options, progress);
  SAME_PLACE(tune_options, payload);
#undef SAME_PLACE
#undef SAME_SIZE
}
END_TEST

/* ---- all entry points ---- */

/* A copy of exactly so many bytes, so that a sanitizer sees a read or a write past it. */
static void *copy_of(const void *bytes, size_t size) {
  void *const copy = malloc(size);
  ck_assert_ptr_nonnull(copy);
  memcpy(copy, bytes, size);
  return copy;
}

/* `size` bytes that begin as `made` does and go on with 0; the first word says `size`. */
static void *resized(const void *made, size_t own, size_t size) {
  char *const copy = calloc(1, size);
  ck_assert_ptr_nonnull(copy);
  memcpy(copy, made, own < size ? own : size);
  memcpy(copy, &size, sizeof size);
  return copy;
}

static void expect_same_run(fatune_plan *plan, const void *arguments) {
  const struct fake_launch before = *lab.cuda.last_launch();
  ck_assert_status(ft_session_enter(lab.session), FT_OK);
  ck_assert_status(fatune_plan_run(plan, arguments, NULL), FATUNE_OK);
  ft_session_leave(lab.session);
  const struct fake_launch *const after = lab.cuda.last_launch();
  ck_assert_int_eq(after->count, before.count + 1);
  ck_assert_mem_eq(after->grid, before.grid, sizeof before.grid);
  ck_assert_mem_eq(after->params, before.params, sizeof before.params);
}

START_TEST(an_older_program_runs) {
  static const uint8_t bitmap[4] = {1, 0, 0, 1};
  const struct old_session_options session_form = {
      .size = sizeof session_form, .system_path = "", .memory_only = 1};
  struct old_session_options *const session_options = copy_of(&session_form, sizeof session_form);
  fatune_session *session;
  ck_assert_status(fatune_session_open(&session, (void *)session_options), FATUNE_OK);

  const struct old_request request_form = {.size = sizeof request_form, .dtype = FATUNE_BF16};
  struct old_request *const request = copy_of(&request_form, sizeof request_form);
  const char *const words = "forward fp16 d64 hq4 hkv2 b3 nq256 causal dropout mask=128x128";
  ck_assert_status(fatune_request_parse((void *)request, words), FATUNE_OK);
  ck_assert_uint_eq(request->size, sizeof *request);
  ck_assert(request->dtype == FATUNE_FP16 && request->heads_q == 4 && request->dropout == 1);
  ck_assert(request->seqlen_k == 256 && request->mask_density == 1);

  fatune_plan *plan, *with;
  ck_assert_status(fatune_plan_make(&plan, session, (void *)request), FATUNE_OK);
  ck_assert_status(fatune_plan_make_with(&with, session, (void *)request, fatune_plan_config(plan)),
                   FATUNE_OK);
  ck_assert_str_eq(fatune_plan_source(plan), fatune_plan_source(with));
  char *text;
  ck_assert_status(fatune_emit(&text, session, (void *)request, NULL, NULL), FATUNE_OK);
  ck_assert_str_eq(text, fatune_plan_source(plan));
  fatune_text_free(text);

  const struct old_mask_options mask_form = {.size = sizeof mask_form,
                                             .blocks = bitmap,
                                             .mask_rows = 128,
                                             .mask_cols = 128,
                                             .batch = 1,
                                             .heads = 1,
                                             .seqlen_q = 256,
                                             .seqlen_k = 256};
  struct old_mask_options *const mask_options = copy_of(&mask_form, sizeof mask_form);
  fatune_mask *mask;
  ck_assert_status(fatune_mask_make(&mask, session, (void *)mask_options, NULL), FATUNE_OK);
  ck_assert_double_eq(fatune_mask_density(mask), 0.5);

  fatune_request now = FATUNE_REQUEST_INIT;
  ck_assert_status(fatune_request_parse(&now, words), FATUNE_OK);
  fatune_arguments arguments = fake_arguments(&now);
  arguments.mask = mask;
  arguments.dropout = 0.25f;
  struct old_arguments *const old = resized(&arguments, sizeof arguments, sizeof *old);
  size_t bytes = 1;
  ck_assert_status(fatune_plan_workspace_for(plan, (void *)old, &bytes), FATUNE_OK);
  ck_assert_uint_eq(bytes, 0);
  ck_assert_status(ft_session_enter(session), FT_OK);
  ck_assert_status(fatune_plan_run(plan, &arguments, NULL), FATUNE_OK);
  ft_session_leave(session);
  expect_same_run(plan, old);

  free(old);
  fatune_mask_free(mask);
  free(mask_options);
  fatune_plan_free(with);
  fatune_plan_free(plan);
  free(request);
  fatune_session_close(session);
  free(session_options);
}
END_TEST

START_TEST(an_older_program_trains) {
  const fatune_request request = fake_request("backward bf16 d64 hq4 nq300 causal");
  fatune_plan *plan;
  ck_assert_status(fatune_plan_make(&plan, lab.session, &request), FATUNE_OK);
  const fatune_arguments arguments = fake_arguments(&request);
  struct old_arguments *const old = resized(&arguments, sizeof arguments, sizeof *old);
  size_t bytes, of_old;
  ck_assert_status(fatune_plan_workspace_for(plan, &arguments, &bytes), FATUNE_OK);
  ck_assert_status(fatune_plan_workspace_for(plan, (void *)old, &of_old), FATUNE_OK);
  ck_assert(bytes > 0 && bytes == of_old);
  ck_assert_status(ft_session_enter(lab.session), FT_OK);
  ck_assert_status(fatune_plan_run(plan, &arguments, NULL), FATUNE_OK);
  const struct fake_launch before = *lab.cuda.last_launch();
  ck_assert_status(fatune_plan_run(plan, (void *)old, NULL), FATUNE_OK);
  ft_session_leave(lab.session);
  ck_assert_mem_eq(lab.cuda.last_launch()->grids, before.grids, sizeof before.grids);
  ck_assert_mem_eq(lab.cuda.last_launch()->params, before.params, sizeof before.params);
  free(old);
  fatune_plan_free(plan);
}
END_TEST

/* It knows of no window, so it has none. */
START_TEST(an_older_program_sees_all_keys_of_a_window) {
  const fatune_request request = fake_request("forward bf16 d64 hq4 nq300 window@20,0");
  fatune_plan *plan;
  ck_assert_status(fatune_plan_make(&plan, lab.session, &request), FATUNE_OK);
  const fatune_arguments arguments = fake_arguments(&request);
  struct old_arguments *const old = resized(&arguments, sizeof arguments, sizeof *old);
  ck_assert(arguments.window_left == -1 && arguments.window_right == -1);
  ck_assert_status(ft_session_enter(lab.session), FT_OK);
  ck_assert_status(fatune_plan_run(plan, &arguments, NULL), FATUNE_OK);
  ft_session_leave(lab.session);
  expect_same_run(plan, old);
  free(old);
  fatune_plan_free(plan);
}
END_TEST

/* A session without a GPU gets past the reading of options and request, and no further. */
START_TEST(an_older_program_tunes) {
  setenv("FATUNE_LIBCUDA", "/nowhere/libcuda.so.1", 1);
  const fatune_session_options session_options = memory_only_options();
  fatune_session *session;
  ck_assert_status(fatune_session_open(&session, &session_options), FATUNE_OK);
  const fatune_request request = fake_request("forward bf16 d64 nq256");
  const struct old_tune_options options_form = {.size = sizeof options_form, .jobs = 1};
  struct old_tune_options *const options = copy_of(&options_form, sizeof options_form);
  struct old_request *const old = resized(&request, sizeof request, sizeof *old);
  ck_assert_status(fatune_tune(session, (void *)old, (void *)options), FATUNE_E_NO_DRIVER);
  options->jobs = -1;
  ck_assert_status(fatune_tune(session, (void *)old, (void *)options), FATUNE_E_ARGUMENT);
  ck_assert_detail("options.jobs is -1");
  options->size = 8;
  ck_assert_status(fatune_tune(session, (void *)old, (void *)options), FATUNE_E_ARGUMENT);
  ck_assert_detail("options.size is 8; allowed: 48, that of fatune_tune_options in version 0.2.0");
  free(options);
  free(old);
  fatune_session_close(session);
}
END_TEST

/* ---- structs of a version to come ---- */

enum { MORE = 24 };

/* A struct with MORE bytes at its end is served while they are 0, and refused by name else. */
#define EXPECT_GROWN(made, call, type)                                                             \
  do {                                                                                             \
    const size_t size = sizeof(made) + MORE;                                                       \
    char *const grown = resized(&(made), sizeof(made), size);                                      \
    ck_assert_status(call, FATUNE_OK);                                                             \
    grown[size - 1] = 1;                                                                           \
    ck_assert_status(call, FATUNE_E_ARGUMENT);                                                     \
    ck_assert_detail("none of the fields beyond; allowed there: 0");                               \
    ck_assert_detail(type " has");                                                                 \
    free(grown);                                                                                   \
  } while (0)

static int opens(const void *options) {
  fatune_session *session;
  const int status = fatune_session_open(&session, options);
  fatune_session_close(session);
  return status;
}

static int emits(const void *request) {
  char *text;
  const int status = fatune_emit(&text, lab.session, request, NULL, NULL);
  fatune_text_free(text);
  return status;
}

static int masks(const void *options) {
  fatune_mask *mask;
  const int status = fatune_mask_make(&mask, lab.session, options, NULL);
  fatune_mask_free(mask);
  return status;
}

static int runs(fatune_plan *plan, const void *arguments) {
  ck_assert_status(ft_session_enter(lab.session), FT_OK);
  const int status = fatune_plan_run(plan, arguments, NULL);
  ft_session_leave(lab.session);
  return status;
}

START_TEST(newer_structs_are_served_while_they_ask_for_nothing_new) {
  static const uint8_t bitmap[1] = {1};
  const fatune_session_options session_options = memory_only_options();
  EXPECT_GROWN(session_options, opens(grown), "fatune_session_options");

  fatune_request request = FATUNE_REQUEST_INIT;
  EXPECT_GROWN(request, fatune_request_parse((void *)grown, "d64 nq256"), "fatune_request");
  request = fake_request("forward bf16 d64 nq256");
  EXPECT_GROWN(request, emits(grown), "fatune_request");

  fatune_mask_options mask_options = FATUNE_MASK_OPTIONS_INIT;
  mask_options.blocks = bitmap;
  mask_options.mask_rows = mask_options.mask_cols = 128;
  mask_options.batch = mask_options.heads = 1;
  mask_options.seqlen_q = mask_options.seqlen_k = 128;
  EXPECT_GROWN(mask_options, masks(grown), "fatune_mask_options");

  fatune_plan *plan;
  ck_assert_status(fatune_plan_make(&plan, lab.session, &request), FATUNE_OK);
  const fatune_arguments arguments = fake_arguments(&request);
  EXPECT_GROWN(arguments, runs(plan, grown), "fatune_arguments");
  size_t bytes;
  EXPECT_GROWN(arguments, fatune_plan_workspace_for(plan, (void *)grown, &bytes),
               "fatune_arguments");
  fatune_plan_free(plan);
}
END_TEST

/* ---- one struct by itself ---- */

struct form {
  size_t size;
  int64_t old, added;
  double added_later;
};

static const struct form initial = {.size = sizeof initial, .old = 1, .added = 2, .added_later = 3};
static const struct ft_sized_struct form = FT_SIZED_STRUCT("thing", struct form, old, &initial);

START_TEST(missing_fields_are_as_initialised) {
  const struct {
    size_t size;
    int64_t old;
  } older = {sizeof older, 7};
  struct form room;
  const void *whole;
  ck_assert_status(ft_sized_read(&form, &older, &room, &whole), FT_OK);
  ck_assert_ptr_eq(whole, &room);
  ck_assert(room.size == sizeof room && room.old == 7 && room.added == 2 && room.added_later == 3);

  const struct form same = {.size = sizeof same, .old = 8};
  ck_assert_status(ft_sized_read(&form, &same, &room, &whole), FT_OK);
  ck_assert_ptr_eq(whole, &same);
}
END_TEST

START_TEST(sizes_of_no_version_are_refused) {
  static const size_t sizes[] = {0, 1, 8, 15, 20, 31, 33, 4104, SIZE_MAX};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    const struct form odd = {.size = sizes[i]};
    struct form room;
    const void *whole;
    char told[64];
    ck_assert_status(ft_sized_read(&form, &odd, &room, &whole), FT_E_ARGUMENT);
    snprintf(told, sizeof told, "thing.size is %zu; allowed: 32, that of struct form", sizes[i]);
    ck_assert_detail(told);
    ck_assert_detail("from 16 to 4096. Start from the _INIT value");
  }
}
END_TEST

START_TEST(what_an_older_struct_cannot_hold_is_not_cut_off) {
  struct {
    size_t size;
    int64_t old;
  } older = {sizeof older, 0};
  struct form whole = initial;
  whole.old = 9;
  ck_assert_status(ft_sized_write(&form, &whole, &older), FT_OK);
  ck_assert(older.size == sizeof older && older.old == 9);
  whole.old = 10;
  whole.added = 11;
  ck_assert_status(ft_sized_write(&form, &whole, &older), FT_E_ARGUMENT);
  ck_assert_detail("thing.size is 16, which has no room for all that is asked for; allowed: 32");
  ck_assert_int_eq(older.old, 9);
}
END_TEST

Suite *make_interface_suite(void) {
  Suite *suite = suite_create("interface");
  TCase *tcase = tcase_create("versions");
  tcase_add_checked_fixture(tcase, set_up, tear_down);
  tcase_add_test(tcase, structs_begin_as_they_did);
  tcase_add_test(tcase, an_older_program_runs);
  tcase_add_test(tcase, an_older_program_trains);
  tcase_add_test(tcase, an_older_program_sees_all_keys_of_a_window);
  tcase_add_test(tcase, an_older_program_tunes);
  tcase_add_test(tcase, newer_structs_are_served_while_they_ask_for_nothing_new);
  suite_add_tcase(suite, tcase);
  tcase = tcase_create("one struct");
  tcase_add_test(tcase, missing_fields_are_as_initialised);
  tcase_add_test(tcase, sizes_of_no_version_are_refused);
  tcase_add_test(tcase, what_an_older_struct_cannot_hold_is_not_cut_off);
  suite_add_tcase(suite, tcase);
  return suite;
}
