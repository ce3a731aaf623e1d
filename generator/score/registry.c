/* registry.c: the score functions that a session knows, by number.
 * in -> out: name, text -> number; number -> score, derivative, CUDA text. */
#include "generator/score/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/score/builtin.h"
#include "generator/score/cuda.h"
#include "generator/score/lower.h"
#include "generator/status.h"

static enum ft_score_kind kind_of(const struct ft_exponent *exponent,
                                  const struct ft_score_cost *cost) {
  /* Of 15 and of 22 instructions tiles of fewer keys were faster on an H200, of 9 they were not. */
  static const double LONG = 14;
  return exponent->tile != 0         ? FT_SCORE_TILE
         : exponent->has_sigmoid     ? FT_SCORE_SIGMOID
         : exponent->has_sides       ? FT_SCORE_SIDES
         : exponent->reads_distances ? FT_SCORE_DISTANCE
         : exponent->reads_keys      ? FT_SCORE_KEYS
         : cost->instructions > LONG ? FT_SCORE_LONG
                                     : FT_SCORE_EACH;
}

static int64_t number_of(const struct ft_known_score *known) {
  int64_t number =
      known->has_score ? kind_of(&known->exponent, &known->costs.exponent) : FT_SCORE_OTHER;
  for (int i = 0; i < FT_SCORE_DIGEST_BITS / 8; ++i)
    number = number << 8 | known->score.digest.bytes[i];
  return number;
}

static bool is_constant(const struct ft_score *score, int node, double value) {
  const struct ft_node *const known = ft_node(&score->expression, node);
  return known->operation == FT_OP_CONSTANT && known->value == value;
}

static const char *captured_name(const struct ft_score *score, int bit) {
  if (bit < score->tensor_count) return score->tensors[bit].name;
  const int scalar = bit - FT_SCORE_TENSORS;
  return scalar >= 0 && scalar < score->scalar_count ? score->scalars[scalar].name : NULL;
}

/* Finds out of each captured thing whether the score can be differentiated by it, and then derives
 * the gradients of all for which it can. */
static int prepare_gradients(struct ft_known_score *known) {
  struct ft_score *const score = &known->score;
  uint64_t wanted = 0;
  for (int bit = 0; bit < FT_GRADIENTS_MOST; ++bit) {
    struct ft_known_gradient *const gradient = &known->gradients[bit];
    const char *const name = captured_name(score, bit);
    if (name == NULL) continue;
    const uint64_t source = ft_source_tensor(bit); /* scalars' bits follow those of tensors */
    const int status = ft_score_derive(score, source, &known->derivatives);
    if (status == FT_E_MEMORY) return status;
    (void)snprintf(gradient->name, sizeof gradient->name, "the gradient of %s", name);
    gradient->exists = status == FT_OK;
    if (gradient->exists) wanted |= source;
    if (!gradient->exists)
      (void)snprintf(gradient->why_not, sizeof gradient->why_not, "%s", ft_detail());
  }
  FT_TRY(ft_score_derive(score, wanted, &known->derivatives));
  return ft_score_emit(score, &known->derivatives, NULL, &known->cuda_with_gradients);
}

/* Where all derivatives are more than an expression holds, there are none by captured things. */
static int try_gradients(struct ft_known_score *known) {
  const int status = known->has_slope ? prepare_gradients(known) : FT_OK;
  if (status == FT_OK || status == FT_E_MEMORY) return status;
  for (int bit = 0; bit < FT_GRADIENTS_MOST; ++bit) {
    known->gradients[bit].exists = false;
    (void)snprintf(known->gradients[bit].why_not, sizeof known->gradients[bit].why_not, "%s",
                   ft_detail());
  }
  return FT_OK;
}

static int count_costs(struct ft_known_score *known) {
  struct ft_expression *const expression = &known->score.expression;
  const struct ft_exponent *const exponent = &known->exponent;
  int roots[] = {known->score.score, known->slope, known->score.visible,
                 exponent->has_sides ? exponent->sided : exponent->general};
  FT_TRY(ft_score_lower(expression, roots, sizeof roots / sizeof *roots));
  known->costs = (struct ft_score_costs){.score = ft_score_cost_of(expression, roots, 1),
                                         .slope = ft_score_cost_of(expression, roots, 2),
                                         .visible = ft_score_cost_of(expression, roots + 2, 1),
                                         .exponent = ft_score_cost_of(expression, roots + 3, 1)};
  known->costs.exponent.instructions -= 1; /* of q . k less the maximum */
  return FT_OK;
}

/* All that kernels and references want to know. */
static int prepare(struct ft_known_score *known) {
  struct ft_score *const score = &known->score;
  struct ft_derivatives derivatives;
  const int status = ft_score_derive(score, 0, &derivatives);
  if (status == FT_E_MEMORY) return status;
  known->has_slope = status == FT_OK;
  if (!known->has_slope)
    (void)snprintf(known->why_no_slope, sizeof known->why_no_slope, "%s", ft_detail());
  known->slope = known->has_slope ? derivatives.by_s : 0;
  known->slope_is_one = known->has_slope && is_constant(score, derivatives.by_s, 1);
  known->slope_varies =
      (ft_node(&score->expression, known->slope)->sources & ft_source_symbol(FT_SYMBOL_S)) != 0;
  const struct ft_node *const stated = ft_node(&score->expression, score->score);
  known->has_score = stated->operation != FT_OP_SYMBOL;
  known->has_visible = !is_constant(score, score->visible, 1);
  FT_TRY(
      ft_score_emit(score, known->has_slope ? &derivatives : NULL, &known->exponent, &known->cuda));
  if (count_costs(known) != FT_OK) return ft_fail_within(FT_E_ARGUMENT, "%s", score->name);
  if (known->has_visible)
    FT_TRY(ft_score_emit_visible(score, &known->cuda_of_visible, &known->visible_values));
  return try_gradients(known);
}

static void free_known(struct ft_known_score *known) {
  if (known == NULL) return;
  ft_score_free(&known->score);
  ft_text_free(&known->cuda);
  ft_text_free(&known->cuda_with_gradients);
  ft_text_free(&known->cuda_of_visible);
  free(known);
}

static int keep(struct ft_score_registry *registry, struct ft_known_score *known) {
  struct ft_known_score **const rows =
      realloc(registry->rows, ((size_t)registry->count + 1) * sizeof *rows);
  if (rows == NULL) return ft_fail(FT_E_MEMORY, "no memory for score %s", known->score.name);
  registry->rows = rows;
  rows[registry->count++] = known;
  return FT_OK;
}

/* NULL: none was added. */
static const struct ft_known_score *added_text(const struct ft_score_registry *registry,
                                               const struct ft_digest *digest) {
  for (int i = 0; i < registry->count; ++i)
    if (ft_digest_equal(&registry->rows[i]->score.digest, digest)) return registry->rows[i];
  return NULL;
}

static const struct ft_known_score *added(const struct ft_score_registry *registry,
                                          int64_t number) {
  for (int i = 0; i < registry->count; ++i)
    if (registry->rows[i]->number == number) return registry->rows[i];
  return NULL;
}

int ft_registry_find(struct ft_score_registry *registry, const struct ft_template_files *files,
                     int64_t number, const struct ft_known_score **known) {
  char name[FT_SCORE_NAME];
  *known = added(registry, number);
  for (int i = 0; *known == NULL && ft_score_builtin_name(files, i, name); ++i) {
    int64_t other = 0;
    FT_TRY(ft_registry_add(registry, files, name, NULL, &other));
    if (other == number) *known = added(registry, number);
  }
  if (*known != NULL) return FT_OK;
  return ft_fail(FT_E_NOT_FOUND, "score %012llx is not known to this session",
                 (unsigned long long)number);
}

int ft_registry_add(struct ft_score_registry *registry, const struct ft_template_files *files,
                    const char *name, const char *text, int64_t *number) {
  struct ft_known_score *const fresh = calloc(1, sizeof *fresh);
  if (fresh == NULL) return ft_fail(FT_E_MEMORY, "no memory for score %s", name);
  int status = text == NULL ? ft_score_read_builtin(&fresh->score, files, name)
                            : ft_score_read(&fresh->score, name, text, strlen(text));
  if (status != FT_OK) goto done;
  const struct ft_known_score *const known = added_text(registry, &fresh->score.digest);
  if (known != NULL) {
    *number = known->number;
    free_known(fresh);
    return FT_OK;
  }
  FT_CHECK(prepare(fresh));
  fresh->number = *number = number_of(fresh);
  const struct ft_known_score *const other = added(registry, *number);
  if (other != NULL)
    FT_CHECK(
        ft_fail(FT_E_ARGUMENT, "scores %s and %s have the same number", name, other->score.name));
  FT_CHECK(keep(registry, fresh));

done:
  if (status != FT_OK) free_known(fresh);
  return status;
}

static int refuse(const struct ft_known_score *known, int bit) {
  const struct ft_known_gradient *const gradient = &known->gradients[bit];
  if (!known->has_slope) return ft_fail(FT_E_ARGUMENT, "%s", known->why_no_slope);
  return ft_fail(FT_E_ARGUMENT, "%s", gradient->why_not);
}

int ft_known_gradient_bit(const struct ft_known_score *known, const char *name, int *bit) {
  for (*bit = 0; *bit < FT_GRADIENTS_MOST; ++*bit) {
    const char *const other = captured_name(&known->score, *bit);
    if (other == NULL || strcmp(name, other) != 0) continue;
    return known->gradients[*bit].exists ? FT_OK : refuse(known, *bit);
  }
  return ft_fail(FT_E_ARGUMENT, "score %s captures no '%s'", known->score.name, name);
}

int ft_known_gradients_check(const struct ft_known_score *known, int64_t wanted) {
  for (int bit = 0; bit < FT_GRADIENTS_MOST; ++bit) {
    if (!(wanted >> bit & 1) || known->gradients[bit].exists) continue;
    if (captured_name(&known->score, bit) != NULL) return refuse(known, bit);
    return ft_fail(FT_E_ARGUMENT,
                   "score %s captures nothing of number %d, whose gradient is wanted",
                   known->score.name, bit);
  }
  return FT_OK;
}

void ft_registry_close(struct ft_score_registry *registry) {
  for (int i = 0; i < registry->count; ++i) free_known(registry->rows[i]);
  free(registry->rows);
  *registry = (struct ft_score_registry){0};
}
