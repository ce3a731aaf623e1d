/* public_calls.c: a program that makes every public call once, on the fake GPU, for test_faults.c.
 * in -> out: "calls" (or "tune") -> what each call gave, on stdout; the status and the detail of
 * each that failed, on stderr; exit code 0: all succeeded. What failed hands out nothing, and what
 * does not need it goes on. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/session.h"
#include "tests/fake_lab.h"

static bool failed;

static bool is_ok(const char *call, int status) {
  if (status == FATUNE_OK) return true;
  fprintf(stderr, "%s: %s: %s\n", call, fatune_status_text(status), fatune_detail());
  failed = true;
  return false;
}

/* As is_ok, of a call that hands something out. */
static bool is_given(const char *call, int status, const void *given) {
  if ((status == FATUNE_OK) == (given != NULL)) return is_ok(call, status);
  fprintf(stderr, "%s: status %d hands out %p\n", call, status, given);
  abort();
}

static void warn(void *payload, const char *message) {
  (void)payload;
  fprintf(stderr, "warning: %s\n", message);
}

static uint64_t digest_of(const char *text) { /* FNV-1a */
  uint64_t digest = UINT64_C(0xcbf29ce484222325);
  for (; *text; text++) digest = (digest ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
  return digest;
}

static void try_requests(fatune_session *session) {
  fatune_request request = FATUNE_REQUEST_INIT, bucket = FATUNE_REQUEST_INIT;
  char *text = NULL;
  if (!is_ok("fatune_request_parse", fatune_request_parse(&request, "d64 hq6 hkv3 nq300 causal")))
    return;
  if (is_ok("fatune_request_bucket", fatune_request_bucket(&bucket, &request)))
    printf("bucket: %d heads, %" PRId64 " queries\n", bucket.heads_q, bucket.seqlen_q);
  const int status = fatune_emit(&text, session, &request, "a100", NULL);
  if (is_given("fatune_emit", status, text)) printf("text: %016" PRIx64 "\n", digest_of(text));
  fatune_text_free(text);
}

static void try_scores(fatune_session *session) {
  static const char own[] = "local t = tensor('t', 'fp32', heads)\nscore = s + t(h)\n";
  int64_t built_in = 0, given = 0, gradient = 0;
  const char *dtype = NULL;
  if (is_ok("fatune_score_add", fatune_score_add(&built_in, session, "softcap", NULL)))
    printf("softcap: %016" PRIx64 "\n", (uint64_t)built_in);
  if (is_ok("fatune_score_add", fatune_score_add(&given, session, "own", own)) &&
      is_ok("fatune_score_gradient", fatune_score_gradient(&gradient, session, given, "t")))
    printf("own: %016" PRIx64 ", gradient %" PRId64 "\n", (uint64_t)given, gradient);
  if (given && is_ok("fatune_score_dtype", fatune_score_dtype(&dtype, session, given, "t")))
    printf("of %s\n", dtype);
}

/* As many keys as queries, all of them new. */
static void try_append(fatune_plan *plan, const fatune_arguments *arguments) {
  const fatune_tensor new_k = {(void *)0x200000, 256 * 64, 64, 64};
  const fatune_tensor new_v = {(void *)0x300000, 256 * 64, 64, 64};
  is_ok("fatune_append", fatune_append(plan, arguments, &new_k, &new_v, NULL));
}

static void run_plan(fatune_plan *plan, const fatune_request *request, const fatune_mask *mask) {
  fatune_arguments arguments = fake_arguments(request);
  size_t bytes = 0, of_run = 0;
  arguments.mask = mask;
  if (is_ok("fatune_plan_workspace_size", fatune_plan_workspace_size(plan, &bytes)) &&
      is_ok("fatune_plan_workspace_for", fatune_plan_workspace_for(plan, &arguments, &of_run)))
    printf("workspace: %zu, %zu\n", bytes, of_run);
  is_ok("fatune_plan_run", fatune_plan_run(plan, &arguments, NULL));
  if (request->pass == FATUNE_FORWARD && !mask) try_append(plan, &arguments);
}

static void try_plan(fatune_session *session, const char *words, const char *config) {
  static const uint8_t bitmap[4] = {1, 0, 0, 1};
  fatune_request request = FATUNE_REQUEST_INIT;
  fatune_mask_options options = FATUNE_MASK_OPTIONS_INIT;
  fatune_mask *mask = NULL;
  fatune_plan *plan = NULL;
  options.blocks = bitmap;
  options.mask_rows = options.mask_cols = 128;
  options.batch = options.heads = 1;
  options.seqlen_q = options.seqlen_k = 256;
  if (!is_ok("fatune_request_parse", fatune_request_parse(&request, words))) return;
  const int status = config ? fatune_plan_make_with(&plan, session, &request, config)
                            : fatune_plan_make(&plan, session, &request);
  if (is_given("fatune_plan_make", status, plan)) {
    const char *const source = fatune_plan_source(plan);
    printf("plan: %s; %s\n", fatune_plan_config(plan), fatune_plan_origin(plan));
    is_ok("fatune_plan_source", source[0] ? FATUNE_OK : FATUNE_E_MEMORY);
    printf("source: %016" PRIx64 "\n", digest_of(source));
  }
  if (request.mask_rows > 0) {
    const int made = fatune_mask_make(&mask, session, &options, NULL);
    if (is_given("fatune_mask_make", made, mask))
      printf("density: %g, longest %d\n", fatune_mask_density(mask),
             (int)fatune_mask_longest(mask, request.pass));
  }
  if (plan && (mask || request.mask_rows == 0)) run_plan(plan, &request, mask);
  fatune_mask_free(mask);
  fatune_plan_free(plan);
}

static void try_merge(fatune_session *session) {
  const fatune_tensor o = {(void *)0x1000, 256 * 64, 64, 64};
  const fatune_part parts[] = {{o, (float *)0x20000}, {o, (float *)0x30000}};
  fatune_merge_arguments arguments = FATUNE_MERGE_ARGUMENTS_INIT;
  arguments.head_dim_v = 64;
  arguments.seqlen_q = 256;
  arguments.o = (fatune_tensor){(void *)0x40000, 256 * 64, 64, 64};
  arguments.parts = parts;
  arguments.part_count = 2;
  is_ok("fatune_merge", fatune_merge(session, &arguments, NULL));
}

static void try_quantise(fatune_session *session) {
  static float descale; /* the fake driver sets it */
  fatune_quantise_arguments arguments = FATUNE_QUANTISE_ARGUMENTS_INIT;
  arguments.head_dim = 64;
  arguments.seqlen = 256;
  arguments.x = (fatune_tensor){(void *)0x1000, 256 * 64, 64, 64};
  arguments.out = (fatune_tensor){(void *)0x20000, 256 * 64, 64, 64};
  arguments.descale = &descale;
  is_ok("fatune_quantise", fatune_quantise(session, &arguments, NULL));
}

static void try_visible(fatune_session *session) {
  static const fatune_captured documents[] = {
      {.name = "document", .data = (void *)0x1000, .extents = {1, 256}, .strides = {256, 1}}};
  fatune_visible_options options = FATUNE_VISIBLE_OPTIONS_INIT;
  fatune_mask *mask = NULL;
  size_t bytes = 0;
  options.mask_rows = options.mask_cols = 128;
  options.seqlen_q = options.seqlen_k = 256;
  if (!is_ok("fatune_score_add", fatune_score_add(&options.score, session, "documents", NULL)))
    return;
  if (is_ok("fatune_visible_memory_size", fatune_visible_memory_size(session, &options, &bytes)))
    printf("lists: %zu\n", bytes);
  const int status = fatune_visible_mask(&mask, session, &options);
  if (is_given("fatune_visible_mask", status, mask))
    is_ok("fatune_mask_update", fatune_mask_update(mask, documents, 1, NULL));
  fatune_mask_free(mask);
}

static void try_rectangles(void) {
  static const fatune_rectangle rectangles[] = {{0, 2, 0, 3, 0}, {1, 3, 2, 5, 1}};
  int32_t bounds[3 * 8];
  is_ok("fatune_rectangle_bounds", fatune_rectangle_bounds(bounds, 3, 5, rectangles, 2));
}

static void try_tune(fatune_session *session) {
  fatune_request request = FATUNE_REQUEST_INIT;
  fatune_tune_options options = FATUNE_TUNE_OPTIONS_INIT;
  options.jobs = 2;
  options.budget_seconds = 0.02;
  if (is_ok("fatune_request_parse", fatune_request_parse(&request, "fp32 d16 nq16")))
    is_ok("fatune_tune", fatune_tune(session, &request, &options));
}

int main(int count, char **words) {
  fatune_session_options options = FATUNE_SESSION_OPTIONS_INIT;
  fatune_session *session = NULL;
  options.log = warn;
  printf("version: %s\n", fatune_version());
  const int opened = fatune_session_open(&session, &options);
  if (is_given("fatune_session_open", opened, session)) {
    const bool entered = is_ok("a context", ft_session_enter(session));
    if (count > 1 && strcmp(words[1], "tune") == 0) {
      try_tune(session);
    } else {
      try_requests(session);
      try_scores(session);
      try_plan(session, "d64 nq256 mask=128x128", NULL);
      try_plan(session, "backward d64 nq256", NULL);
      try_plan(session, "d64 nq256",
               "mma_forward block_m=64 block_n=64 warps=4 stages=2 ctas_per_sm=1");
      try_merge(session);
      try_quantise(session);
      try_visible(session);
      try_rectangles();
    }
    if (entered) ft_session_leave(session);
  }
  fatune_session_close(session);
  return fflush(stdout) != 0 || failed;
}
