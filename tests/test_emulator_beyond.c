/* test_emulator_beyond.c: the Hopper backward by random configs that can run, those that the search
 * passes over, too. Other suites draw configs of all families that the search tries: few are of the
 * Hopper backward. in -> out: seed -> requests, configs -> every row against float64, no race, no
 * hang, on an emulated H200. */
#include <stdlib.h>

#include "generator/families/wgmma_backward.h"
#include "generator/families/wgmma_backward_roles.h"
#include "generator/space.h"
#include "generator/status.h"
#include "runtime/session.h"
#include "tests/emulator_lab.h"
#include "tests/matrix_cases.h"
#include "tests/suites.h"
#include "tuner/verify/random_inputs.h"

enum { RUNS = 12 };

/* Each that can run is as likely as any other. false: there is none. */
static bool random_config(struct ft_config *chosen, const struct ft_request *request,
                          const struct ft_arch *arch, const struct ft_family *family,
                          uint64_t *state) {
  struct ft_space space;
  struct ft_config config;
  const struct ft_rule *broken;
  uint64_t seen = 0;
  if (ft_space_open(&space, request, arch) != FT_OK) return false;
  while (ft_space_next_any(&space, &config, &broken)) {
    const bool can_run = broken == NULL || broken->kind != FT_CANNOT_RUN;
    if (config.family == family && can_run && ft_random_next(state) % ++seen == 0) *chosen = config;
  }
  return seen > 0;
}

static void choose(struct ft_problem_options *options, struct ft_config *config,
                   const struct ft_arch *arch, const struct ft_family *family, uint64_t *state) {
  static const struct matrix_size size = {
      .longest = 400, .rows = 512, .rows_seldom = 1536, .tile = 1};
  do {
    *options = (struct ft_problem_options){.seed = ft_random_next(state)};
    matrix_choose_backward(options, (int)(ft_random_next(state) % 100000), &size);
  } while (!random_config(config, &options->request, arch, family, state));
}

START_TEST(configs_that_can_run_are_right) {
  const struct ft_family *const family =
      _i % 4 == 3 ? &ft_wgmma_backward_roles_family : &ft_wgmma_backward_family;
  fatune_session *const session = emulator_open("h200", NULL);
  uint64_t state = emulator_seed() + (uint64_t)_i;
  struct ft_problem_options options;
  struct ft_config config;
  struct ft_text text = FT_TEXT_INIT;
  struct emulator_run run;
  choose(&options, &config, &session->device.arch, family, &state);
  char *const request = emulator_request_text(&options.request);
  ft_text_add(&text, "%s by ", request);
  const size_t begin = text.length;
  ft_config_print(&config, &text);
  ck_assert_int_eq(ft_text_status(&text), FT_OK);
  emulator_run(&run, session, &options, text.data + begin);
  emulator_expect_right(text.data, &run);
  emulator_run_free(&run);
  ft_text_free(&text);
  free(request);
  fatune_session_close(session);
}
END_TEST

Suite *make_emulator_beyond_suite(void) {
  Suite *const suite = suite_create("emulator_beyond");
  TCase *const tests = tcase_create("configs");
  tcase_set_timeout(tests, 300);
  tcase_add_loop_test(tests, configs_that_can_run_are_right, 0, emulator_runs(RUNS));
  suite_add_tcase(suite, tests);
  return suite;
}
