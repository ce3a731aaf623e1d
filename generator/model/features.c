/* features.c: the numbers that a fit corrects a prediction by.
 * in -> out: request, arch, config, prediction by the factors set by hand -> features. */
#include "generator/model/features.h"

#include <math.h>
#include <string.h>

#include "generator/families/packed_heads.h"

static const char *const names[] = {
#define FT_NAME(name) #name,
    FT_REQUEST_FEATURES(FT_NAME) FT_CONFIG_FEATURES(FT_NAME) FT_DEFAULT_FEATURES(FT_NAME)
#undef FT_NAME
#define FT_NAME(name, values, least, most, means) "mma_forward_" #name,
        FT_MMA_FORWARD_KNOBS(FT_NAME)
#undef FT_NAME
#define FT_NAME(name, values, least, most, means) "wgmma_forward_" #name,
            FT_WGMMA_FORWARD_KNOBS(FT_NAME)
#undef FT_NAME
#define FT_NAME(name, values, least, most, means) "mma_backward_" #name,
                FT_MMA_BACKWARD_KNOBS(FT_NAME)
#undef FT_NAME
#define FT_NAME(name, values, least, most, means) "wgmma_backward_" #name,
                    FT_WGMMA_BACKWARD_KNOBS(FT_NAME)
#undef FT_NAME
#define FT_NAME(name, values, least, most, means) "wgmma_backward_roles_" #name,
                        FT_WGMMA_BACKWARD_ROLES_KNOBS(FT_NAME)
#undef FT_NAME
};
static_assert(FT_COUNT(names) == FT_FEATURES, "a name each");

/* The first knob of each family. */
static const struct {
  const struct ft_family *family;
  enum ft_feature first;
} knobs_of[] = {{&ft_mma_forward_family, FT_FEATURE_mma_forward_block_m},
                {&ft_wgmma_forward_family, FT_FEATURE_wgmma_forward_block_m},
                {&ft_mma_backward_family, FT_FEATURE_mma_backward_block_m},
                {&ft_wgmma_backward_family, FT_FEATURE_wgmma_backward_block_m},
                {&ft_wgmma_backward_roles_family, FT_FEATURE_wgmma_backward_roles_block_m}};

const char *ft_feature_name(enum ft_feature feature) {
  return names[feature];
}

static float octaves(double x) {
  return log2f((float)fmax(x, 1e-6));
}

static float octaves_above(double x, double other) {
  return octaves(fmax(1e-3, x) / fmax(1e-3, other));
}

static float beyond(double rows, double block) {
  return (float)(1 - rows / (ceil(rows / block) * block));
}

struct ft_features ft_request_features(const struct ft_request *request) {
  const double group = (double)request->heads_q / request->heads_kv;
  struct ft_features features = {{0}};
  float *const f = features.of;
  f[FT_FEATURE_head_dim] = (float)request->head_dim;
  f[FT_FEATURE_head_dim_v] = (float)request->head_dim_v;
  f[FT_FEATURE_element_bytes] = (float)ft_dtype_bytes(request->dtype);
  f[FT_FEATURE_fp32] = request->dtype == FT_FP32;
  f[FT_FEATURE_tf32] = request->dtype == FT_TF32;
  f[FT_FEATURE_e4m3] = request->dtype == FT_E4M3;
  f[FT_FEATURE_kv_e4m3] = request->dtype_kv == FT_KV_E4M3;
  f[FT_FEATURE_causal] = request->causal != FT_CAUSAL_NONE;
  f[FT_FEATURE_window] = request->window != FT_WINDOW_NONE;
  f[FT_FEATURE_mask_rows] = (float)request->mask_rows;
  f[FT_FEATURE_mask_density] = request->mask_rows > 0 ? (float)request->mask_density : 1;
  f[FT_FEATURE_ragged] = request->ragged;
  f[FT_FEATURE_page_rows] = (float)request->pages;
  f[FT_FEATURE_dropout] = request->dropout;
  f[FT_FEATURE_deterministic] = request->deterministic;
  f[FT_FEATURE_score] = request->score != 0;
  f[FT_FEATURE_heads_kv] = octaves((double)request->batch * request->heads_kv);
  f[FT_FEATURE_group] = octaves(group);
  f[FT_FEATURE_queries] = octaves((double)request->seqlen_q);
  f[FT_FEATURE_keys] = octaves((double)request->seqlen_k);
  f[FT_FEATURE_group_rows] = octaves((double)request->seqlen_q * group);
  f[FT_FEATURE_kv_bytes] =
      octaves((double)request->batch * request->heads_kv * (double)request->seqlen_k *
              (request->head_dim + request->head_dim_v) * ft_dtype_bytes(ft_kv_dtype(request)));
  return features;
}

static void beside_default(float *f, const struct ft_config *config,
                           const struct ft_prediction *prediction,
                           const struct ft_standard *standard) {
  enum { OF_OTHERS = 9 };
  const struct ft_config *const usual = &standard->config;
  const bool alike = usual->family == config->family;
  int apart = alike ? 0 : OF_OTHERS;
  for (int n = FT_KNOB_BLOCK_N + 1; alike && n < config->family->knob_count; n++)
    apart += usual->knobs[n] != config->knobs[n];
  f[FT_FEATURE_default_family] = alike;
  f[FT_FEATURE_default_apart] = (float)apart;
  f[FT_FEATURE_default_block_m] =
      octaves((double)ft_config_block_m(config) / ft_config_block_m(usual));
  f[FT_FEATURE_default_block_n] =
      octaves((double)ft_config_block_n(config) / ft_config_block_n(usual));
  f[FT_FEATURE_default_us] = octaves(prediction->us / standard->prediction.us);
  f[FT_FEATURE_default_waves] = octaves_above(prediction->waves, standard->prediction.waves);
  const struct ft_predicted_walk *const walk = &prediction->walk;
  const struct ft_predicted_walk *const usual_walk = &standard->prediction.walk;
  f[FT_FEATURE_default_steps] = octaves_above(walk->steps, usual_walk->steps);
  f[FT_FEATURE_default_parts] = octaves_above(walk->parts, usual_walk->parts);
  f[FT_FEATURE_default_ahead] = octaves_above(walk->ahead_bytes, usual_walk->ahead_bytes);
}

/* What blocks walk over, and in how many rounds. */
static void walks(float *f, const struct ft_prediction *prediction) {
  const struct ft_predicted_walk *const walk = &prediction->walk;
  const double us = fmax(1e-3, prediction->us), steps = fmax(1e-3, walk->steps);
  const double rounds = fmax(1e-3, walk->rounds);
  const double of_one_block = /* a multiprocessor at a time */
      fmax(1e-3, prediction->waves) * fmax(1, prediction->occupancy);
  f[FT_FEATURE_steps] = octaves(walk->steps);
  f[FT_FEATURE_longest] = octaves(walk->longest / steps);
  f[FT_FEATURE_parts] = octaves(walk->parts);
  f[FT_FEATURE_merge_share] = (float)(walk->merge_us / us);
  f[FT_FEATURE_ahead] = octaves(walk->ahead_bytes);
  f[FT_FEATURE_sms_idle] = (float)(1 - of_one_block / ceil(of_one_block));
  f[FT_FEATURE_rounds] = octaves(rounds);
  f[FT_FEATURE_round_idle] = (float)(1 - rounds / ceil(rounds));
  f[FT_FEATURE_step_us] = octaves(us / (steps * ceil(rounds)));
}

static void knobs(float *f, const struct ft_config *config) {
  for (int n = 0; n < FT_COUNT(knobs_of); n++) {
    const struct ft_family *const family = knobs_of[n].family;
    float *const own = f + knobs_of[n].first;
    for (int k = 0; k < family->knob_count; k++)
      own[k] = family == config->family ? (float)config->knobs[k] : 0;
  }
}

void ft_config_features(struct ft_features *features, const struct ft_modelled *of,
                        const struct ft_prediction *prediction,
                        const struct ft_standard *standard) {
  const struct ft_request *const request = of->request;
  const struct ft_config *const config = of->config;
  const struct ft_budget budget = ft_budget_of(request, config, of->arch);
  const bool forward = request->pass == FT_FORWARD;
  const double block_m = ft_config_block_m(config), block_n = ft_config_block_n(config);
  const double us = fmax(1e-3, prediction->us), waves = fmax(1e-3, prediction->waves);
  const double resident = fmax(1, prediction->occupancy);
  const int packed = forward ? 1 << ft_pack_of(config, request).bits : 1;
  float *const f = features->of;
  f[FT_FEATURE_block_m] = (float)block_m;
  f[FT_FEATURE_block_n] = (float)block_n;
  f[FT_FEATURE_threads] = (float)budget.threads;
  f[FT_FEATURE_registers] = (float)budget.regs_estimate / (float)fmax(1, budget.regs_limit);
  f[FT_FEATURE_smem] = (float)budget.smem_bytes / 1024;
  f[FT_FEATURE_occupancy] = (float)prediction->occupancy;
  f[FT_FEATURE_warps] = (float)(budget.threads / 32.0 * resident);
  f[FT_FEATURE_us] = octaves(us);
  f[FT_FEATURE_mma_share] = (float)(prediction->mma_us / us);
  f[FT_FEATURE_exp_share] = (float)(prediction->exp_us / us);
  f[FT_FEATURE_issue_share] = (float)(prediction->issue_us / us);
  f[FT_FEATURE_smem_share] = (float)(prediction->smem_us / us);
  f[FT_FEATURE_l2_share] = (float)(prediction->l2_us / us);
  f[FT_FEATURE_dram_share] = (float)(prediction->dram_us / us);
  f[FT_FEATURE_waves] = octaves(waves);
  f[FT_FEATURE_blocks] = octaves(waves * resident * of->arch->sm_count);
  f[FT_FEATURE_idle] = (float)(1 - waves / ceil(waves));
  f[FT_FEATURE_uneven] = beyond((double)request->seqlen_q * packed, block_m);
  f[FT_FEATURE_uneven_keys] = beyond((double)request->seqlen_k, block_n);
  walks(f, prediction);
  beside_default(f, config, prediction, standard);
  knobs(f, config);
}
