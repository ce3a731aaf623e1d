/* fit.c: what was fitted to recorded trials.
 * in -> out: generator/model/fit/TARGET.fit, made by fit.py -> tables. */
#include "generator/model/fit.h"

#include <assert.h>
#include <string.h>

/* A file of trees is read twice, for what they ask and for the trees. */
#define EACH(...)                                                                                  \
  { __VA_ARGS__ }
#define NOTHING(...)

#define TREE                  NOTHING
#define QUESTION(name, above) {above, FT_FEATURE_##name},
static const struct ft_tree_question sm_90_forward_questions[] = {
#include "generator/model/fit/sm_90.forward.trees"
};
static const struct ft_tree_question sm_90_backward_questions[] = {
#include "generator/model/fit/sm_90.backward.trees"
};
#undef TREE
#undef QUESTION

#define QUESTION                   NOTHING
#define TREE(asked, scale, leaves) {EACH asked, scale, EACH leaves},
static const struct ft_tree sm_90_forward[] = {
#include "generator/model/fit/sm_90.forward.trees"
};
static const struct ft_tree sm_90_backward[] = {
#include "generator/model/fit/sm_90.backward.trees"
};
#undef TREE
#undef QUESTION

static_assert(FT_COUNT(sm_90_forward_questions) <= FT_TREE_QUESTIONS_MOST &&
                  FT_COUNT(sm_90_backward_questions) <= FT_TREE_QUESTIONS_MOST,
              "answers have room");

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
  { of##_questions, of, FT_COUNT(of##_questions), FT_COUNT(of) }
static const struct {
  enum ft_pass pass;
  const char *target;
  struct ft_trees trees;
} trees[] = {{FT_FORWARD, "sm_90", TREES(sm_90_forward)},
             {FT_BACKWARD, "sm_90", TREES(sm_90_backward)}};

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

const struct ft_trees *ft_fit_trees(enum ft_pass pass, const struct ft_arch *arch) {
  for (int n = 0; n < FT_COUNT(trees); n++)
    if (trees[n].pass == pass && is_of(trees[n].target, arch)) return &trees[n].trees;
  return NULL;
}
