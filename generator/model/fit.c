/* fit.c: what was fitted to recorded trials.
 * in -> out: generator/model/fit/TARGET.fit, made by fit.py -> tables. */
#include "generator/model/fit.h"

#include <assert.h>
#include <string.h>

#define TREES_OF   sm_90_forward
#define TREES_FILE "generator/model/fit/sm_90.forward.trees"
#include "generator/model/trees_of_file.h"
#define TREES_OF   sm_90_backward
#define TREES_FILE "generator/model/fit/sm_90.backward.trees"
#include "generator/model/trees_of_file.h"
#define TREES_OF   sm_90_mma_backward
#define TREES_FILE "generator/model/fit/sm_90.mma_backward.trees"
#include "generator/model/trees_of_file.h"
#define TREES_OF   sm_90_wgmma_backward
#define TREES_FILE "generator/model/fit/sm_90.wgmma_backward.trees"
#include "generator/model/trees_of_file.h"
#define TREES_OF   sm_90_wgmma_backward_roles
#define TREES_FILE "generator/model/fit/sm_90.wgmma_backward_roles.trees"
#include "generator/model/trees_of_file.h"

static const struct ft_fit fits[] = {
#define FAMILY(name) .family = &ft_##name##_family
#include "generator/model/fit/sm_90.fit"
#undef FAMILY
};

static const struct ft_fit_choice choices[] = {
#include "generator/model/fit/sm_90.choice"
};

static const struct {
  const char *target, *config;
} starts[] = {
#include "generator/model/fit/sm_90.starts"
};

#define TREES(of)                                                                                  \
  {                                                                                                \
    of##_questions, of##_asked, of##_scales, of##_leaves, FT_COUNT(of##_questions),                \
        FT_COUNT(of##_scales)                                                                      \
  }
static const struct {
  enum ft_pass pass;
  const char *target;
  struct ft_trees trees;
} of_passes[] = {{FT_FORWARD, "sm_90", TREES(sm_90_forward)},
                 {FT_BACKWARD, "sm_90", TREES(sm_90_backward)}};

static const struct {
  const struct ft_family *family;
  const char *target;
  struct ft_trees trees;
} of_families[] = {
    {&ft_mma_backward_family, "sm_90", TREES(sm_90_mma_backward)},
    {&ft_wgmma_backward_family, "sm_90", TREES(sm_90_wgmma_backward)},
    {&ft_wgmma_backward_roles_family, "sm_90", TREES(sm_90_wgmma_backward_roles)},
};

static bool is_of(const char *target, const struct ft_arch *arch) {
  char own[16];
  ft_arch_target(arch, own);
  return strcmp(target, own) == 0;
}

const struct ft_fit *ft_fit_of(const struct ft_family *family, const struct ft_arch *arch) {
  for (int n = 0; n < FT_COUNT(fits); n++)
    if (fits[n].family == family && is_of(fits[n].target, arch)) return &fits[n];
  return NULL;
}

const struct ft_fit_choice *ft_fit_choice_of(enum ft_pass pass, const struct ft_arch *arch) {
  for (int n = 0; n < FT_COUNT(choices); n++)
    if (choices[n].pass == pass && is_of(choices[n].target, arch)) return &choices[n];
  return NULL;
}

static bool names(const char *config, const struct ft_family *family) {
  const size_t length = strlen(family->name);
  return strncmp(config, family->name, length) == 0 && config[length] == ' ';
}

const char *ft_fit_start(const struct ft_family *family, const struct ft_arch *arch, int *place) {
  while (*place < FT_COUNT(starts)) {
    const int at = (*place)++;
    if (names(starts[at].config, family) && is_of(starts[at].target, arch))
      return starts[at].config;
  }
  return NULL;
}

const struct ft_trees *ft_fit_trees_of_pass(enum ft_pass pass, const struct ft_arch *arch) {
  for (int n = 0; n < FT_COUNT(of_passes); n++)
    if (of_passes[n].pass == pass && is_of(of_passes[n].target, arch)) return &of_passes[n].trees;
  return NULL;
}

const struct ft_trees *ft_fit_trees_of_family(const struct ft_family *family,
                                              const struct ft_arch *arch) {
  for (int n = 0; n < FT_COUNT(of_families); n++)
    if (of_families[n].family == family && is_of(of_families[n].target, arch))
      return &of_families[n].trees;
  return NULL;
}
