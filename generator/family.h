/* family.h: what a kernel family is: one descriptor, in a pair of files in generator/families/.
 * in -> out: a family's two lists -> its typed knobs and budget; a name -> its descriptor.
 * family.c lists the families. */
#ifndef GENERATOR_FAMILY_H
#define GENERATOR_FAMILY_H

#include <assert.h>

#include "generator/rules.h"
#include "generator/schedule.h"

struct ft_family {
  const char *name;          /* "wgmma_forward": a config's text begins with it */
  const char *instructions;  /* "mma", "wgmma" */
  const char *target_suffix; /* of what NVRTC compiles for: "a" in "sm_90a" */
  const char *template_name; /* in templates/ */
  enum ft_pass pass;
  /* Whether the family has a kernel for a request of its pass that runs on the GPU. */
  bool (*serves)(const struct ft_request *request, const struct ft_arch *arch);

  /* The form of the tile scheduler. */
  enum ft_schedule (*schedule)(const struct ft_request *request, const struct ft_config *config);

  const struct ft_knob *knobs;
  int knob_count;
  const struct ft_budget_field *budget_fields; /* of budget.own */
  int budget_field_count;
  const struct ft_rule *rules; /* beside those of rules.c, which are for every family */
  int rule_count;

  /* Fills all of an all-zero budget. Every knob is within its range. */
  void (*plan)(struct ft_budget *budget, const struct ft_request *request,
               const struct ft_config *config, const struct ft_arch *arch);
  /* The hand-written prior; false: no config of the family is legal. */
  bool (*default_config)(const struct ft_request *request, const struct ft_arch *arch,
                         struct ft_config *config);
};

/* Every family: index 0.. until NULL. Later ones are more specialised: the default config is one of
 * the last family that has one. */
const struct ft_family *ft_family_at(int index);

/* By name, or NULL. */
const struct ft_family *ft_family_named(const char *name);

/* The same for a request of any pass. The rule "family" asks, and so do the search space and the
 * default config. */
bool ft_family_serves(const struct ft_family *family, const struct ft_request *request,
                      const struct ft_arch *arch);

/* ---- a family's two lists ----
 *
 * FT_NAME_KNOBS(KNOB): KNOB(name, (values), least, most, meaning). The search space draws from the
 * values; a config may hold least to most. A knob whose least is 0 is a switch: a text that does
 * not name it means 0. One value alone, such as (0): the switch is emitted, and tried by --config,
 * but not searched. The first two knobs are block_m and block_n.
 *
 * FT_NAME_BUDGET(TEMPLATE, HOST): TEMPLATE(name, meaning) and HOST(name, meaning) are what follows
 * from the knobs besides struct ft_budget. Templates read the former as budget.name. */

#define FT_UNWRAP(...)                                  __VA_ARGS__
#define FT_KNOB_FIELD(name, values, least, most, means) int name;
#define FT_KNOB_VALUES(name, values, least, most, means)                                           \
  static const int name##_values[] = {FT_UNWRAP values};
#define FT_KNOB_ROW(name, values, least, most, means)                                              \
  {#name, means, name##_values, (int)(sizeof name##_values / sizeof *name##_values), least, most},
#define FT_BUDGET_MEMBER(name, means)       int name;
#define FT_BUDGET_ROW_TEMPLATE(name, means) {#name, means, true},
#define FT_BUDGET_ROW_HOST(name, means)     {#name, means, false},

/* In the header: ft_wgmma_forward_knobs(config)->block_m,
 * ft_wgmma_forward_budget(budget)->consumers read the arrays of a config and of a budget under the
 * names of the lists. */
#define FT_DECLARE_FAMILY(family_name, KNOBS, BUDGET)                                              \
  extern const struct ft_family ft_##family_name##_family;                                         \
  struct ft_##family_name##_knobs {                                                                \
    KNOBS(FT_KNOB_FIELD)                                                                           \
  };                                                                                               \
  struct ft_##family_name##_budget {                                                               \
    BUDGET(FT_BUDGET_MEMBER, FT_BUDGET_MEMBER)                                                     \
  };                                                                                               \
  static_assert(sizeof(struct ft_##family_name##_knobs) <= FT_KNOBS_MOST * sizeof(int),            \
                "as many knobs as a config holds");                                                \
  static_assert(sizeof(struct ft_##family_name##_budget) <= FT_BUDGET_MOST * sizeof(int),          \
                "as many fields as a budget holds");                                               \
  static_assert(offsetof(struct ft_##family_name##_knobs, block_m) == 0 &&                         \
                    offsetof(struct ft_##family_name##_knobs, block_n) == sizeof(int),             \
                "FT_KNOB_BLOCK_M, FT_KNOB_BLOCK_N");                                               \
  static inline const struct ft_##family_name##_knobs *ft_##family_name##_knobs(                   \
      const struct ft_config *config) {                                                            \
    assert(config->family == &ft_##family_name##_family);                                          \
    return (const struct ft_##family_name##_knobs *)config->knobs;                                 \
  }                                                                                                \
  static inline const struct ft_##family_name##_budget *ft_##family_name##_budget(                 \
      const struct ft_budget *budget) {                                                            \
    return (const struct ft_##family_name##_budget *)budget->own;                                  \
  }                                                                                                \
  struct ft_##family_name##_knobs /* takes the semicolon */

/* In the .c: the tables knob_table and budget_table; FT_FAMILY_LISTS puts them into the descriptor,
 * FT_FAMILY_TABLES puts `rules` there, too. */
#define FT_DEFINE_TABLES(KNOBS, BUDGET)                                                            \
  KNOBS(FT_KNOB_VALUES)                                                                            \
  static const struct ft_knob knob_table[] = {KNOBS(FT_KNOB_ROW)};                                 \
  static const struct ft_budget_field budget_table[] = {                                           \
      BUDGET(FT_BUDGET_ROW_TEMPLATE, FT_BUDGET_ROW_HOST)};                                         \
  struct ft_family /* takes the semicolon */
#define FT_FAMILY_LISTS                                                                            \
  .knobs = knob_table, .knob_count = FT_COUNT(knob_table), .budget_fields = budget_table,          \
  .budget_field_count = FT_COUNT(budget_table)

/* The bit of a knob in ft_rule.reads. */
#define FT_READS(family_name, knob)                                                                \
  (1u << offsetof(struct ft_##family_name##_knobs, knob) / sizeof(int))
#define FT_FAMILY_TABLES FT_FAMILY_LISTS, .rules = rules, .rule_count = FT_COUNT(rules)

#define FT_COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

#endif
