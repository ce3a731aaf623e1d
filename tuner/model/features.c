/* features.c: the numbers that a fit weighs to correct a prediction.
 * in -> out: request, arch, config, prediction by the factors set by hand -> features. */
#include "tuner/model/features.h"

#include <math.h>

#include "generator/visibility.h"
#include "tuner/model/rates.h"

static const char *const setting_names[] = {/* ORDER SETTING */
                                            "any",  "wide",   "masked", "small",
                                            "long", "decode", "marked", "bytes"};
static const char *const term_names[] = {/* ORDER TERM */
                                         "offset", "idle", "waves", "uneven", "warps",
                                         "mma",    "exp",  "issue", "smem",   "l2"};
static_assert(FT_COUNT(setting_names) == FT_SETTINGS, "a name each");
static_assert(FT_COUNT(term_names) == FT_TERMS, "a name each");

const char *ft_setting_name(int setting) {
  return setting_names[setting];
}

const char *ft_term_name(int term) {
  return term_names[term];
}

int ft_searched_place(const struct ft_knob *knob, int value) {
  for (int n = 0; n < knob->searched_count; n++)
    if (knob->searched[n] == value) return n;
  return -1;
}

static double within(double least, double x, double most) {
  return fmin(most, fmax(least, x));
}

/* Where no trial was, nothing is known: beyond three octaves all count alike. */
static double octaves(double x, double from) {
  return within(-3, log2(fmax(x, 1e-9) / from), 3);
}

struct ft_features ft_features_of(const struct ft_modelled *of,
                                  const struct ft_prediction *prediction) {
  enum { LARGE_TILE = 128, FEW_QUERIES = 64 };
  const struct ft_request *const request = of->request;
  const double queries = (double)request->seqlen_q;
  const double group = (double)request->heads_q / request->heads_kv;
  const double tiles = request->pass == FT_FORWARD
                           ? ceil(queries / LARGE_TILE) * request->heads_q
                           : ceil((double)request->seqlen_k / LARGE_TILE) * request->heads_kv;
  const double sms = fmax(1, of->arch->sm_count);
  const double rows = request->pass == FT_FORWARD ? queries : (double)request->seqlen_k;
  const double block =
      request->pass == FT_FORWARD ? ft_config_block_m(of->config) : ft_config_block_n(of->config);
  const double threads = ft_budget_of(request, of->config, of->arch).threads;
  const double us = fmax(1e-3, prediction->us);
  const double in_waves = fmax(1e-3, prediction->waves);
  return (struct ft_features){
      .settings = {[FT_SETTING_ANY] = 1,
                   [FT_SETTING_WIDE] = octaves((request->head_dim + request->head_dim_v) / 2., 128),
                   [FT_SETTING_MASKED] = ft_visibility_varies(request),
                   [FT_SETTING_SMALL] = fmax(0, -octaves((double)request->batch * tiles, sms)),
                   [FT_SETTING_LONG] = octaves((double)request->seqlen_k, 4096),
                   [FT_SETTING_DECODE] = queries * group <= FEW_QUERIES,
                   [FT_SETTING_MARKED] = request->dropout || request->ragged || request->pages > 0,
                   [FT_SETTING_BYTES] = octaves(ft_dtype_bytes(request->dtype), 2)},
      .terms = {[FT_TERM_OFFSET] = 1,
                [FT_TERM_IDLE] = 1 - in_waves / ceil(in_waves),
                [FT_TERM_WAVES] = octaves(in_waves, 1),
                [FT_TERM_UNEVEN] = 1 - rows / (ceil(rows / block) * block),
                [FT_TERM_WARPS] = octaves(threads / 32 * fmax(1, prediction->occupancy), 8),
                [FT_TERM_MMA] = prediction->mma_us / us,
                [FT_TERM_EXP] = prediction->exp_us / us,
                [FT_TERM_ISSUE] = prediction->issue_us / us,
                [FT_TERM_SMEM] = prediction->smem_us / us,
                [FT_TERM_L2] = prediction->l2_us / us}};
}
