/* fake_lab.c: sessions on the fake GPU.
 * in -> out: nothing -> session; its end -> nothing left behind. */
#include "tests/fake_lab.h"

#include "generator/status.h"

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
