/* fake_lab.c: sessions, requests and runs on the fake GPU.
 * in -> out: words -> request -> arguments; words -> a whole program's status. */
#include "tests/fake_lab.h"

#include "generator/status.h"
#include "generator/space.h"
#include "runtime/kernel_source.h"
#include "runtime/session.h"
#include "tests/store_fixture.h"

struct fake_lab fake_lab_open(void) {
  struct fake_lab lab = {.cuda = use_fake_cuda()};
  const fatune_session_options options = memory_only_options();
  ck_assert_status(fatune_session_open(&lab.session, &options), FATUNE_OK);
  return lab;
}

void fake_lab_close(const struct fake_lab *lab) {
  fatune_session_close(lab->session);
  ck_assert_int_eq(lab->cuda.live(), 0);
  ck_assert_int_eq(lab->cuda.depth(), 0);
}

fatune_request fake_request(const char *words) {
  fatune_request request = FATUNE_REQUEST_INIT;
  ck_assert_status(fatune_request_parse(&request, words), FATUNE_OK);
  return request;
}

fatune_arguments fake_arguments(const fatune_request *r) {
  fatune_arguments a = FATUNE_ARGUMENTS_INIT;
  const int64_t d = r->head_dim, dv = r->head_dim_v, hq = r->heads_q, hkv = r->heads_kv;
  a.q = (fatune_tensor){(void *)0x1000, r->seqlen_q * hq * d, hq * d, d};
  a.k = (fatune_tensor){(void *)0x2000, r->seqlen_k * hkv * d, hkv * d, d};
  a.v = (fatune_tensor){(void *)0x3000, r->seqlen_k * hkv * dv, hkv * dv, dv};
  a.o = (fatune_tensor){(void *)0x4000, r->seqlen_q * hq * dv, hq * dv, dv};
  if (r->pass == FATUNE_FORWARD) return a;
  a.dout = a.o, a.dq = a.q, a.dk = a.k, a.dv = a.v;
  a.dout.data = (void *)0x5000;
  a.dq.data = (void *)0x6000;
  a.dk.data = (void *)0x7000;
  a.dv.data = (void *)0x8000;
  a.lse = (void *)0x9000;
  a.workspace = (void *)0x10000;
  return a;
}

int fake_program(const char *words) {
  static const uint8_t bitmap[4] = {1, 0, 0, 1};
  const fatune_session_options options = memory_only_options();
  const fatune_request request = fake_request(words);
  fatune_mask_options mask_options = FATUNE_MASK_OPTIONS_INIT;
  mask_options.blocks = bitmap;
  mask_options.mask_rows = mask_options.mask_cols = 128;
  mask_options.batch = mask_options.heads = 1;
  mask_options.seqlen_q = mask_options.seqlen_k = 256;
  fatune_arguments arguments = fake_arguments(&request);
  fatune_session *session = NULL;
  fatune_plan *plan = NULL;
  fatune_mask *mask = NULL;
  bool entered = false;
  int status;
  FT_CHECK(fatune_session_open(&session, &options));
  FT_CHECK(fatune_plan_make(&plan, session, &request));
  FT_CHECK(fatune_mask_make(&mask, session, &mask_options, NULL));
  FT_CHECK(ft_session_enter(session));
  entered = true;
  arguments.mask = mask;
  FT_CHECK(fatune_plan_run(plan, &arguments, NULL));

done:
  if (entered) ft_session_leave(session);
  fatune_mask_free(mask);
  fatune_plan_free(plan);
  fatune_session_close(session);
  return status;
}

struct ft_digest fake_measured(fatune_session *session, const char *words, struct ft_trial *trial) {
  const struct ft_arch *const arch = &session->device.arch;
  struct ft_source source;
  struct ft_kernel kernel;
  bool compiled;
  *trial = make_trial(words, session->device.id, 0, 100);
  trial->templates = session->templates;
  assert_ok(ft_default_config(&trial->request, arch, &trial->config));
  assert_ok(ft_session_emit(session, &trial->request, arch, &trial->config, &source));
  assert_ok(ft_session_kernel(session, &source, NULL, &kernel, &compiled));
  const struct ft_digest digest = source.digest;
  trial->kernel = kernel.key;
  assert_ok(ft_store_trial_put(session->store, trial));
  ft_kernel_free(&kernel);
  ft_source_free(&source);
  return digest;
}
