/* test_session.c: opening sessions with and without a GPU, and what needs no GPU.
 * in -> out: options -> session; requests, emission, kernels on the fake libraries. */
#include <stdio.h>
#include <string.h>

#include "generator/lua_host.h"
#include "generator/space.h"
#include "generator/status.h"
#include "runtime/choice.h"
#include "runtime/kernel_source.h"
#include "runtime/public.h"
#include "runtime/session.h"
#include "tests/fake/use_fake.h"
#include "tests/suites.h"

static struct fake_controls cuda, nvrtc;

static void use_fakes(void) {
  cuda = use_fake_cuda();
  nvrtc = use_fake_nvrtc();
}

static fatune_session *open_memory_only(void) {
  fatune_session *session;
  const fatune_session_options options = memory_only_options();
  ck_assert_status(fatune_session_open(&session, &options), FATUNE_OK);
  return session;
}

START_TEST(sessions_open_with_a_gpu) {
  fatune_session *const session = open_memory_only();
  ck_assert(session->has_device);
  ck_assert(session->owns_context);
  ck_assert_status(ft_session_needs_device(session), FT_OK);
  ck_assert_str_eq(session->device.id, "nvidia-h200/sm_90/132");
  ck_assert_int_eq(nvrtc.calls(NULL), 0); /* NVRTC is for the first compile */
  ck_assert_status(ft_session_enter(session), FT_OK);
  ck_assert_int_eq(cuda.depth(), 1);
  ft_session_leave(session);
  ck_assert_int_eq(cuda.depth(), 0);
  fatune_session_close(session);
  ck_assert_int_eq(cuda.live(), 0);
}
END_TEST

START_TEST(the_current_context_is_taken) {
  const struct fake_gpu current = {"NVIDIA H200", 90, 132, 1, 0, 1};
  cuda.gpu(&current);
  fatune_session *const session = open_memory_only();
  ck_assert(!session->owns_context);
  ck_assert_int_eq(cuda.calls("cuDevicePrimaryCtxRetain"), 0);
  fatune_session_close(session);
  ck_assert_int_eq(cuda.depth(), 1);
}
END_TEST

START_TEST(sessions_open_without_a_driver) {
  setenv("FATUNE_LIBCUDA", "/nowhere/libcuda.so.1", 1);
  fatune_session *const session = open_memory_only();
  ck_assert(!session->has_device);
  ck_assert_status(ft_session_needs_device(session), FT_E_NO_DRIVER);
  ck_assert_detail("/nowhere/libcuda.so.1");
  ck_assert_status(ft_session_enter(session), FT_E_NO_DRIVER);

  const fatune_request request = {sizeof request, FATUNE_FORWARD, FATUNE_BF16, 128,
                                  .seqlen_q = 1024};
  fatune_plan *plan;
  ck_assert_status(fatune_plan_make(&plan, session, &request), FATUNE_E_NO_DRIVER);
  ck_assert_ptr_null(plan);
  char *text;
  ck_assert_status(fatune_emit(&text, session, &request, NULL, NULL), FATUNE_E_NO_DRIVER);
  ck_assert_detail("gpu is NULL");
  ck_assert_ptr_null(text);
  ck_assert_status(fatune_emit(&text, session, &request, "a100", NULL), FATUNE_OK);
  ck_assert_ptr_nonnull(strstr(text, "fatune_kernel"));
  fatune_text_free(text);
  fatune_session_close(session);
}
END_TEST

START_TEST(a_driver_without_gpus_is_no_gpu) {
  const struct fake_gpu none = {"", 0, 0, 0, 0, 0};
  cuda.gpu(&none);
  fatune_session *const session = open_memory_only();
  ck_assert_status(ft_session_needs_device(session), FT_E_NO_DRIVER);
  ck_assert_detail("no GPU");
  fatune_session_close(session);
}
END_TEST

START_TEST(bad_options_are_named) {
  const fatune_session_options good = memory_only_options();
  fatune_session *session;
#define BAD(field, value, part)                                                                    \
  do {                                                                                             \
    fatune_session_options bad = good;                                                             \
    bad.field = value;                                                                             \
    session = (fatune_session *)(uintptr_t)1;                                                      \
    ck_assert_status(fatune_session_open(&session, &bad), FATUNE_E_ARGUMENT);                      \
    ck_assert_detail(part);                                                                        \
    ck_assert_ptr_null(session);                                                                   \
  } while (0)
  BAD(size, 0, "options.size is 0");
  BAD(size, 4104, "options.size is 4104");
  BAD(device, -1, "options.device is -1");
  BAD(device, 2, "options.device is 2; allowed: 0 .. 1");
  BAD(memory_only, 2, "options.memory_only is 2");
  BAD(compile, 1, "options.compile is 1");
#undef BAD
  ck_assert_status(fatune_session_open(NULL, &good), FATUNE_E_ARGUMENT);
  fatune_session_close(NULL);
  ck_assert_int_eq(cuda.live(), 0);
}
END_TEST

START_TEST(a_missing_template_folder_is_an_error) {
  fatune_session_options options = memory_only_options();
  options.template_dir = "/nowhere/templates";
  fatune_session *session;
  ck_assert_int_ne(fatune_session_open(&session, &options), FATUNE_OK);
  ck_assert_ptr_null(session);
  ck_assert_detail("/nowhere/templates");
}
END_TEST

/* ---- requests ---- */

START_TEST(requests_go_to_and_fro) {
  fatune_request parsed = FATUNE_REQUEST_INIT;
  struct ft_request inner;
  struct ft_text text = FT_TEXT_INIT;
  const char *const words =
      "forward fp16 d96 dv64 hq8 hkv2 b3 nq100 nk200 causal=top-left dropout mask=64x128@0.25";
  ck_assert_status(fatune_request_parse(&parsed, words), FATUNE_OK);
  ck_assert_uint_eq(parsed.size, sizeof parsed);
  ck_assert_status(ft_request_from_public(&inner, &parsed), FATUNE_OK);
  ft_request_print(&inner, &text);
  ck_assert_str_eq(text.data, words);
  ft_text_free(&text);
  ck_assert_status(fatune_request_parse(&parsed, "forward d128 nq4096 wrong"), FATUNE_E_ARGUMENT);
  ck_assert_detail("wrong");
  ck_assert_status(fatune_request_parse(&parsed, NULL), FATUNE_E_ARGUMENT);
  ck_assert_status(fatune_request_parse(NULL, words), FATUNE_E_ARGUMENT);
}
END_TEST

START_TEST(zero_means_the_default) {
  fatune_request request = FATUNE_REQUEST_INIT;
  request.head_dim = 64;
  request.seqlen_q = 77;
  struct ft_request inner;
  ck_assert_status(ft_request_from_public(&inner, &request), FT_OK);
  ck_assert_int_eq(inner.dtype, FT_BF16);
  ck_assert_int_eq(inner.head_dim_v, 64);
  ck_assert_int_eq(inner.heads_q, 1);
  ck_assert_int_eq(inner.heads_kv, 1);
  ck_assert_int_eq(inner.batch, 1);
  ck_assert_int_eq(inner.seqlen_k, 77);
  ck_assert_double_eq(inner.mask_density, 1);
  request.heads_kv = 3;
  ck_assert_status(ft_request_from_public(&inner, &request), FT_OK);
  ck_assert_int_eq(inner.heads_q, 3);
}
END_TEST

START_TEST(bad_requests_are_named) {
  fatune_request good = FATUNE_REQUEST_INIT;
  good.head_dim = 64;
  good.seqlen_q = 77;
  struct ft_request inner;
#define BAD(field, value, part)                                                                    \
  do {                                                                                             \
    fatune_request bad = good;                                                                     \
    bad.field = value;                                                                             \
    ck_assert_status(ft_request_from_public(&inner, &bad), FT_E_ARGUMENT);                         \
    ck_assert_detail(part);                                                                        \
  } while (0)
  BAD(size, 1, "request.size is 1");
  BAD(pass, (fatune_pass)7, "request: pass is 7");
  BAD(dtype, (fatune_dtype)5, "request: dtype is 5");
  BAD(dtype = FATUNE_E4M3; bad.pass, FATUNE_BACKWARD, "dtype is e4m3 with pass backward");
  BAD(dtype = FATUNE_E4M3; bad.dropout, 1, "dropout is true with dtype e4m3");
  BAD(dtype = FATUNE_E4M3; bad.head_dim, 72, "head_dim is 72 with dtype e4m3");
  BAD(dtype = FATUNE_E4M3; bad.head_dim_v, 72, "head_dim_v is 72 with dtype e4m3");
  BAD(dtype = FATUNE_E4M3; bad.dtype_o, 3, "dtype_o is 3; allowed: default (0), fp16 (1), ");
  BAD(descale_rows, 96, "descale_rows is 96; allowed: ");
  BAD(descale_rows, 64, "descale_rows is 64 with dtype bf16; allowed: 0, or dtype e4m3");
  BAD(fast_exp, 1, "fast_exp is true with dtype bf16; allowed: false, or dtype e4m3");
  BAD(fast_exp, 2, "fast_exp is 2");
  BAD(dtype_kv, 2, "dtype_kv is 2; allowed: default (0), e4m3 (1)");
  BAD(dtype_kv = FATUNE_KV_E4M3; bad.pass, FATUNE_BACKWARD, "dtype_kv is e4m3 with pass backward");
  BAD(dtype_o, FATUNE_O_FP16, "dtype_o is fp16 with dtype bf16; allowed: default");
  BAD(causal, (fatune_causal)3, "request: causal is 3");
  BAD(dropout, 2, "request: dropout is 2");
  BAD(deterministic, -1, "request: deterministic is -1");
  BAD(head_dim, 0, "head_dim is 0");
  BAD(head_dim, 260, "head_dim is 260");
  BAD(head_dim_v, 20, "head_dim_v is 20");
  BAD(heads_q, -4, "heads_q is -4");
  good.heads_q = 4;
  BAD(heads_kv, 3, "heads_q is 4");
  BAD(seqlen_q, 0, "seqlen_q is 0");
  BAD(seqlen_k, -1, "seqlen_k is -1");
  BAD(batch, -1, "batch is -1");
  BAD(mask_rows, 64, "mask_cols is 0");
  BAD(mask_density, -0.5, "mask_density is -0.5");
#undef BAD
  ck_assert_status(ft_request_from_public(&inner, NULL), FT_E_ARGUMENT);
}
END_TEST

/* ---- kernels ---- */

static struct ft_source emit_default(fatune_session *session, const char *words) {
  struct ft_request request;
  struct ft_choice choice;
  struct ft_source source;
  const struct ft_arch *const arch = &session->device.arch;
  ck_assert_status(ft_request_parse(&request, words), FT_OK);
  ck_assert_status(ft_session_choose(session, &request, arch, session->device.id, &choice), FT_OK);
  ck_assert_int_eq(choice.hit, FT_HIT_DEFAULT);
  ck_assert_status(ft_session_emit(session, &request, arch, &choice.config, &source), FT_OK);
  return source;
}

START_TEST(kernels_are_compiled_once) {
  fatune_session *const session = open_memory_only();
  struct ft_source source = emit_default(session, "forward bf16 d128 nq128");
  struct ft_kernel kernel;
  for (int i = 0; i < 2; i++) {
    bool compiled;
    ck_assert_status(ft_session_kernel(session, &source, NULL, &kernel, &compiled), FT_OK);
    ck_assert_int_eq(compiled, i == 0);
    ck_assert_int_eq(nvrtc.calls("nvrtcCompileProgram"), 1);
    ft_kernel_free(&kernel);
  }
  ft_source_free(&source);
  fatune_session_close(session);
  ck_assert_int_eq(nvrtc.live(), 0);
}
END_TEST

START_TEST(without_nvrtc_a_missing_kernel_says_so) {
  setenv("FATUNE_LIBNVRTC", "/nowhere/libnvrtc.so", 1);
  fatune_session *session = open_memory_only();
  struct ft_source source = emit_default(session, "forward bf16 d128 nq128");
  struct ft_kernel kernel;
  bool compiled;
  ck_assert_status(ft_session_kernel(session, &source, NULL, &kernel, &compiled), FT_E_NO_NVRTC);
  ck_assert_detail("in no cache");
  ck_assert_detail("/nowhere/libnvrtc.so");
  fatune_session_close(session);

  fatune_session_options options = memory_only_options();
  options.compile = -1;
  ck_assert_status(fatune_session_open(&session, &options), FATUNE_OK);
  ck_assert_status(ft_session_kernel(session, &source, NULL, &kernel, &compiled), FT_E_NO_NVRTC);
  ck_assert_detail("options.compile is -1");
  fatune_session_close(session);
  ft_source_free(&source);
}
END_TEST

START_TEST(emission_names_what_is_wrong) {
  fatune_session *const session = open_memory_only();
  fatune_request request = FATUNE_REQUEST_INIT;
  request.head_dim = 128;
  request.seqlen_q = 1024;
  char *text;
  ck_assert_status(fatune_emit(&text, session, &request, NULL, NULL), FATUNE_OK);
  fatune_text_free(text);
  ck_assert_status(fatune_emit(&text, session, &request, "gtx9000", NULL), FATUNE_E_NOT_FOUND);
  ck_assert_detail("gtx9000");
  ck_assert_status(fatune_emit(&text, session, &request, "t4", NULL), FATUNE_E_UNSUPPORTED);
  ck_assert_ptr_null(text);
  ck_assert_status(fatune_emit(&text, session, &request, NULL, "mma_forward nonsense=1"),
                   FATUNE_E_ARGUMENT);
  ck_assert_detail("nonsense");
  ck_assert_status(fatune_emit(NULL, session, &request, NULL, NULL), FATUNE_E_ARGUMENT);
  ck_assert_status(fatune_emit(&text, NULL, &request, NULL, NULL), FATUNE_E_ARGUMENT);
  ck_assert_status(fatune_emit(&text, session, NULL, NULL, NULL), FATUNE_E_ARGUMENT);
  fatune_session_close(session);
}
END_TEST

/* Whoever hands over tensors asks what is read of them: the library gets addresses alone. */
START_TEST(what_is_captured_has_a_dtype) {
  static const char *const dtypes[] = {"fp32", "fp16", "bf16", "int32", "int64", "uint8", "bool"};
  fatune_session *const session = open_memory_only();
  int64_t score;
  const char *dtype;
  char text[256];
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
    snprintf(text, sizeof text,
             "local w = scalar('w')\nlocal other = tensor('other', 'fp32', nq)\n"
             "local t = tensor('t', '%s', nk)\n%s",
             dtypes[i],
             i < 3    ? "score = s + w * t(j) + other(i)"
             : i == 6 ? "visible = t(j)\nscore = s + w * other(i)"
                      : "visible = t(j) == 1\nscore = s + w * other(i)");
    ck_assert_status(fatune_score_add(&score, session, "own", text), FATUNE_OK);
    ck_assert_status(fatune_score_dtype(&dtype, session, score, "t"), FATUNE_OK);
    ck_assert_str_eq(dtype, dtypes[i]);
    ck_assert_status(fatune_score_dtype(&dtype, session, score, "other"), FATUNE_OK);
    ck_assert_str_eq(dtype, "fp32");
  }
  ck_assert_status(fatune_score_dtype(&dtype, session, score, "w"), FATUNE_E_ARGUMENT);
  ck_assert_ptr_null(dtype);
  ck_assert_detail("score own captures no tensor 'w'");
  ck_assert_status(fatune_score_dtype(NULL, session, score, "t"), FATUNE_E_ARGUMENT);
  ck_assert_status(fatune_score_dtype(&dtype, NULL, score, "t"), FATUNE_E_ARGUMENT);
  ck_assert_status(fatune_score_dtype(&dtype, session, score, NULL), FATUNE_E_ARGUMENT);
  ck_assert_status(fatune_score_dtype(&dtype, session, 0, "t"), FATUNE_E_ARGUMENT);
  ck_assert_int_ne(fatune_score_dtype(&dtype, session, score + 1, "t"), FATUNE_OK);
  fatune_session_close(session);
}
END_TEST

START_TEST(statuses_have_words) {
  for (int status = FATUNE_E_INTERRUPTED; status <= FATUNE_OK; status++)
    ck_assert_str_ne(fatune_status_text(status), fatune_status_text(12345));
  ck_assert_str_eq(fatune_version(), "0.2.0");
}
END_TEST

Suite *make_session_suite(void) {
  Suite *const suite = suite_create("session");
  TCase *const tests = tcase_create("session");
  tcase_add_checked_fixture(tests, use_fakes, NULL);
  tcase_add_test(tests, sessions_open_with_a_gpu);
  tcase_add_test(tests, the_current_context_is_taken);
  tcase_add_test(tests, sessions_open_without_a_driver);
  tcase_add_test(tests, a_driver_without_gpus_is_no_gpu);
  tcase_add_test(tests, bad_options_are_named);
  tcase_add_test(tests, a_missing_template_folder_is_an_error);
  tcase_add_test(tests, requests_go_to_and_fro);
  tcase_add_test(tests, zero_means_the_default);
  tcase_add_test(tests, bad_requests_are_named);
  tcase_add_test(tests, kernels_are_compiled_once);
  tcase_add_test(tests, without_nvrtc_a_missing_kernel_says_so);
  tcase_add_test(tests, emission_names_what_is_wrong);
  tcase_add_test(tests, what_is_captured_has_a_dtype);
  tcase_add_test(tests, statuses_have_words);
  suite_add_tcase(suite, tests);
  return suite;
}
