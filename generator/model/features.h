/* features.h: what a fit may correct a prediction by.
 * in -> out: request + arch + config + prediction by hand -> numbers with names.
 * The fit and its use compute them here, so that they cannot differ. */
#ifndef GENERATOR_FEATURES_H
#define GENERATOR_FEATURES_H

#include "generator/families/mma_backward.h"
#include "generator/families/mma_forward.h"
#include "generator/families/wgmma_backward.h"
#include "generator/families/wgmma_backward_roles.h"
#include "generator/families/wgmma_forward.h"
#include "generator/model/prediction.h"

/* Of a request: the same for all configs. Lengths, heads and the like count in octaves. */
#define FT_REQUEST_FEATURES(F)                                                                     \
  F(head_dim)                                                                                      \
  F(head_dim_v)                                                                                    \
  F(element_bytes)                                                                                 \
  F(fp32)                                                                                          \
  F(tf32)                                                                                          \
  F(e4m3)                                                                                          \
  F(kv_e4m3)                                                                                       \
  F(causal)                                                                                        \
  F(window)                                                                                        \
  F(mask_rows)                                                                                     \
  F(mask_density)                                                                                  \
  F(ragged)                                                                                        \
  F(page_rows)                                                                                     \
  F(dropout)                                                                                       \
  F(deterministic)                                                                                 \
  F(score)                                                                                         \
  F(heads_kv) /* of all batch entries */                                                           \
  F(group)    /* query heads of a head of K and V */                                               \
  F(queries)  /* of a head */                                                                      \
  F(keys)                                                                                          \
  F(group_rows) /* queries of a group */                                                           \
  F(kv_bytes)   /* of all K and V */

/* Of a config: budget, occupancy, what the model says by hand. */
#define FT_CONFIG_FEATURES(F)                                                                      \
  F(block_m)                                                                                       \
  F(block_n)                                                                                       \
  F(threads)                                                                                       \
  F(registers) /* share of those allowed, by the estimate */                                       \
  F(smem)      /* KiB of a block */                                                                \
  F(occupancy)                                                                                     \
  F(warps)     /* of a multiprocessor */                                                           \
  F(us)        /* predicted, in octaves */                                                         \
  F(mma_share) /* of the time predicted for which the matrix unit is busy */                       \
  F(exp_share)                                                                                     \
  F(issue_share)                                                                                   \
  F(smem_share)                                                                                    \
  F(l2_share)                                                                                      \
  F(dram_share)                                                                                    \
  F(waves)                                                                                         \
  F(blocks)                                                                                        \
  F(idle)        /* share of multiprocessors that are idle in the last wave */                     \
  F(uneven)      /* share of a head's tiles that lies beyond its queries */                        \
  F(uneven_keys) /* likewise beyond its keys */                                                    \
  F(steps)       /* that a block takes at a time, in the mean; octaves */                          \
  F(longest)     /* octaves above them, of the longest */                                          \
  F(parts)       /* of a tile's walk; octaves */                                                   \
  F(merge_share) /* of the time predicted, to put parts together */                                \
  F(ahead)       /* bytes of K and V on their way to a multiprocessor; octaves */                  \
  F(sms_idle)    /* share of multiprocessors that are idle in the last round of one block each */  \
  F(rounds)      /* of clusters, or blocks, resident together; octaves */                          \
  F(round_idle)  /* share that is idle in the last of them */                                      \
  F(step_us)     /* predicted, of a step of every block of a round; octaves */

/* Of a config beside the default of the request. */
#define FT_DEFAULT_FEATURES(F)                                                                     \
  F(default_family)  /* 1: that of the default */                                                  \
  F(default_apart)   /* switches and stages that differ */                                         \
  F(default_block_m) /* octaves above that of the default */                                       \
  F(default_block_n)                                                                               \
  F(default_us)                                                                                    \
  F(default_waves)                                                                                 \
  F(default_steps)                                                                                 \
  F(default_parts)                                                                                 \
  F(default_ahead)

enum ft_feature { /* and each knob of each family: 0 in the others' configs */
#define FT_FEATURE(name) FT_FEATURE_##name,
                  FT_REQUEST_FEATURES(FT_FEATURE) FT_CONFIG_FEATURES(FT_FEATURE)
                      FT_DEFAULT_FEATURES(FT_FEATURE)
#undef FT_FEATURE
#define FT_FEATURE(name, values, least, most, means) FT_FEATURE_mma_forward_##name,
                          FT_MMA_FORWARD_KNOBS(FT_FEATURE)
#undef FT_FEATURE
#define FT_FEATURE(name, values, least, most, means) FT_FEATURE_wgmma_forward_##name,
                              FT_WGMMA_FORWARD_KNOBS(FT_FEATURE)
#undef FT_FEATURE
#define FT_FEATURE(name, values, least, most, means) FT_FEATURE_mma_backward_##name,
                                  FT_MMA_BACKWARD_KNOBS(FT_FEATURE)
#undef FT_FEATURE
#define FT_FEATURE(name, values, least, most, means) FT_FEATURE_wgmma_backward_##name,
                                      FT_WGMMA_BACKWARD_KNOBS(FT_FEATURE)
#undef FT_FEATURE
#define FT_FEATURE(name, values, least, most, means) FT_FEATURE_wgmma_backward_roles_##name,
                                          FT_WGMMA_BACKWARD_ROLES_KNOBS(FT_FEATURE)
#undef FT_FEATURE
                                              FT_FEATURES
};

const char *ft_feature_name(enum ft_feature feature);

struct ft_features {
  float of[FT_FEATURES];
};

/* The default, as the configs of its request are compared with it. */
struct ft_standard {
  struct ft_config config;
  struct ft_prediction prediction;
};

/* Those of the request, the others 0. The request is as the models see it (ft_request_alike). */
struct ft_features ft_request_features(const struct ft_request *request);

/* Fills in those of the config. */
void ft_config_features(struct ft_features *features, const struct ft_modelled *of,
                        const struct ft_prediction *prediction, const struct ft_standard *standard);

#endif
