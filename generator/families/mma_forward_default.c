/* mma_forward_default.c: the default config of the forward by mma.sync.
 * in -> out: request + arch -> config. */
#include "generator/families/mma_forward.h"
#include "generator/families/plan.h"

/* Best first. Bigger heads need more registers for O, so rows per warp shrink; the rows below a
 * GPU's limits in shared memory come later. */
struct favourite {
  struct ft_favoured of;
  struct ft_mma_forward_knobs knobs;
};
static const struct favourite favourites[] = {
    {FT_FAVOURED(2, 64, FT_ALWAYS), {TILE(128, 64), .warps = 4, .stages = 2, .ctas_per_sm = 2}},
    /* sm_86, sm_89: room for a second block. */
    {FT_FAVOURED(2, 64, FT_ALWAYS),
     {TILE(128, 64), .warps = 4, .stages = 2, .q_in_regs = 1, .ctas_per_sm = 2}},
    {FT_FAVOURED(2, 64, FT_ALWAYS),
     {TILE(128, 64), .warps = 4, .stages = 1, .ctas_per_sm = 1}}, /* sm_75 */
    {FT_FAVOURED(2, 128, FT_ALWAYS), {TILE(128, 64), .warps = 4, .stages = 2, .ctas_per_sm = 2}},
    {FT_FAVOURED(2, 128, FT_ALWAYS), {TILE(128, 32), .warps = 4, .stages = 2, .ctas_per_sm = 2}},
    {FT_FAVOURED(2, 128, FT_ALWAYS), {TILE(128, 32), .warps = 4, .stages = 2, .ctas_per_sm = 1}},
    /* Masks of 64 rows, short queries. */
    {FT_FAVOURED(2, 128, FT_ALWAYS), {TILE(64, 64), .warps = 4, .stages = 2, .ctas_per_sm = 2}},
    {FT_FAVOURED(2, 128, FT_ALWAYS), {TILE(64, 32), .warps = 4, .stages = 2, .ctas_per_sm = 2}},
    {FT_FAVOURED(2, 128, FT_ALWAYS), {TILE(64, 64), .warps = 4, .stages = 1, .ctas_per_sm = 1}},
    {FT_FAVOURED(2, 256, FT_ALWAYS), {TILE(64, 64), .warps = 4, .stages = 1, .ctas_per_sm = 2}},
    {FT_FAVOURED(2, 256, FT_ALWAYS), {TILE(128, 64), .warps = 8, .stages = 2, .ctas_per_sm = 1}},
    {FT_FAVOURED(2, 256, FT_ALWAYS), {TILE(64, 32), .warps = 4, .stages = 2, .ctas_per_sm = 1}},
    {FT_FAVOURED(2, 256, FT_ALWAYS), {TILE(64, 32), .warps = 4, .stages = 1, .ctas_per_sm = 1}},
    {FT_FAVOURED(2, 256, FT_ALWAYS),
     {TILE(64, 32), .warps = 4, .stages = 1, .ctas_per_sm = 1, .q_in_regs = 1}}, /* sm_75 */
    /* Of fp32 and tf32, whose tiles take twice the room, and whose products, of fp32, six fragments
     * each. The order is an H200's (bench/ledger.md). */
    {FT_FAVOURED(4, 64, FT_OF_TF32),
     {TILE(128, 64), .warps = 4, .stages = 2, .q_in_regs = 1, .ctas_per_sm = 2}},
    {FT_FAVOURED(4, 128, FT_OF_TF32_FEW_SEEN),
     {TILE(64, 64), .warps = 4, .stages = 1, .q_in_regs = 1, .ctas_per_sm = 2}},
    {FT_FAVOURED(4, 128, FT_OF_TF32), {TILE(128, 32), .warps = 4, .stages = 1, .ctas_per_sm = 2}},
    {FT_FAVOURED(4, 64, FT_FEW_SEEN), {TILE(64, 32), .warps = 4, .stages = 2, .ctas_per_sm = 2}},
    {FT_FAVOURED(4, 64, FT_VARIED), {TILE(64, 48), .warps = 4, .stages = 3, .ctas_per_sm = 2}},
    {FT_FAVOURED(4, 64, FT_ALWAYS), {TILE(128, 32), .warps = 4, .stages = 2, .ctas_per_sm = 2}},
    {FT_FAVOURED(4, 64, FT_ALWAYS), {TILE(64, 64), .warps = 4, .stages = 2, .ctas_per_sm = 2}},
    {FT_FAVOURED(4, 64, FT_ALWAYS),
     {TILE(64, 32), .warps = 4, .stages = 2, .ctas_per_sm = 2}}, /* sm_86, sm_89 */
    {FT_FAVOURED(4, 128, FT_VARIED), {TILE(64, 32), .warps = 4, .stages = 2, .ctas_per_sm = 2}},
    /* Dropout draws the bits of 64 keys at once, and for steps of 16 four times. */
    {FT_FAVOURED(4, 128, FT_PLAIN), {TILE(128, 16), .warps = 4, .stages = 2, .ctas_per_sm = 2}},
    {FT_FAVOURED(4, 128, FT_ALWAYS), {TILE(128, 32), .warps = 8, .stages = 2, .ctas_per_sm = 1}},
    {FT_FAVOURED(4, 128, FT_ALWAYS), {TILE(64, 32), .warps = 4, .stages = 2, .ctas_per_sm = 1}},
    {FT_FAVOURED(4, 256, FT_OF_TF32), {TILE(64, 32), .warps = 4, .stages = 1, .ctas_per_sm = 1}},
    {FT_FAVOURED(4, 256, FT_PLAIN), {TILE(64, 16), .warps = 4, .stages = 1, .ctas_per_sm = 1}},
    {FT_FAVOURED(4, 256, FT_ALWAYS), {TILE(64, 32), .warps = 4, .stages = 1, .ctas_per_sm = 1}},
    /* Of e4m3. Estimates for sm_89 and sm_120: the largest tiles whose registers ptxas does not
     * spill. */
    {FT_FAVOURED(1, 64, FT_ALWAYS),
     {TILE(128, 64), .warps = 4, .stages = 2, .q_in_regs = 1, .ctas_per_sm = 2}},
    {FT_FAVOURED(1, 96, FT_ALWAYS), {TILE(128, 64), .warps = 4, .stages = 2, .ctas_per_sm = 2}},
    {FT_FAVOURED(1, 128, FT_ALWAYS), {TILE(128, 32), .warps = 4, .stages = 2, .ctas_per_sm = 2}},
    /* Masks of 64 rows, short queries. */
    {FT_FAVOURED(1, 128, FT_ALWAYS), {TILE(64, 64), .warps = 4, .stages = 2, .ctas_per_sm = 2}},
    {FT_FAVOURED(1, 256, FT_ALWAYS), {TILE(128, 64), .warps = 8, .stages = 2, .ctas_per_sm = 1}},
    {FT_FAVOURED(1, 256, FT_ALWAYS), {TILE(64, 64), .warps = 4, .stages = 1, .ctas_per_sm = 2}},
    {FT_FAVOURED(1, 256, FT_ALWAYS), {TILE(64, 32), .warps = 4, .stages = 2, .ctas_per_sm = 1}},
};

/* Of e4m3 where it is turned into fp16, for which operands take registers. */
static const struct favourite converted[] = {
    {FT_FAVOURED(1, 64, FT_ALWAYS), {TILE(128, 32), .warps = 4, .stages = 2, .ctas_per_sm = 2}},
    {FT_FAVOURED(1, 192, FT_ALWAYS), {TILE(128, 32), .warps = 8, .stages = 2, .ctas_per_sm = 1}},
    {FT_FAVOURED(1, 256, FT_ALWAYS), {TILE(128, 64), .warps = 8, .stages = 2, .ctas_per_sm = 1}},
    {FT_FAVOURED(1, 256, FT_ALWAYS), {TILE(64, 32), .warps = 4, .stages = 2, .ctas_per_sm = 2}},
};

/* Of fp32 and tf32 where tiles of 128 rows would leave multiprocessors without work: 64 rows, whose
 * blocks each have most of a multiprocessor. The order is an H200's (bench/ledger.md). */
static const struct favourite of_few_tiles[] = {
    {FT_FAVOURED(4, 64, FT_OF_TF32),
     {TILE(64, 64), .warps = 4, .stages = 2, .q_in_regs = 1, .overlap_qk = 1, .ctas_per_sm = 1}},
    {FT_FAVOURED(4, 128, FT_OF_TF32),
     {TILE(64, 32), .warps = 4, .stages = 3, .q_in_regs = 1, .ctas_per_sm = 1}},
    {FT_FAVOURED(4, 64, FT_VARIED), {TILE(64, 32), .warps = 4, .stages = 3, .ctas_per_sm = 2}},
};

/* Measured where queries see all keys or are causal, without dropout and score. */
static bool take_of_few_tiles(const struct ft_request *request, const struct ft_arch *arch,
                              struct ft_config *config) {
  enum { ROWS = 128 };
  if (!ft_heads_are_plain(request) || request->dropout || request->window ||
      !ft_tiles_fit(request, ROWS, arch->sm_count))
    return false;
  for (int i = 0; i < FT_COUNT(of_few_tiles); ++i) {
    if (!ft_favourite_counts(of_few_tiles[i].of, request)) continue;
    *config = ft_config_make(&ft_mma_forward_family, &of_few_tiles[i].knobs);
    if (ft_config_is_legal(config, request, arch)) return true;
  }
  return false;
}

/* split_keys: 0, or 1 for blocks that share the steps of all sequences. */
static bool take_favourite(const struct ft_request *request, const struct ft_arch *arch,
                           int split_keys, struct ft_config *config) {
  const bool converts = request->dtype == FT_E4M3 && !ft_has_mma_of_e4m3(arch);
  const struct favourite *const list = converts ? converted : favourites;
  const int count = converts ? FT_COUNT(converted) : FT_COUNT(favourites);
  for (int i = 0; i < count; ++i) {
    struct ft_mma_forward_knobs knobs = list[i].knobs;
    if (!ft_favourite_counts(list[i].of, request)) continue;
    knobs.split_keys = split_keys;
    *config = ft_config_make(&ft_mma_forward_family, &knobs);
    if (ft_config_is_legal(config, request, arch)) return true;
  }
  return false;
}

/* For what is left (fine masks, short queries, small shared memory): one warp per 16 rows, which
 * always fits the registers, the largest tile first. */
static bool climb_down(const struct ft_request *request, const struct ft_arch *arch, int split_keys,
                       struct ft_config *config) {
  static const int rows[] = {64, 32, 16}, columns[] = {64, 32, 48, 16};
  for (int m = 0; m < FT_COUNT(rows); ++m)
    for (int n = 0; n < FT_COUNT(columns); ++n)
      for (int stages = arch->sm >= 80 ? 2 : 1; stages >= 1; --stages) {
        *config =
            FT_CONFIG(mma_forward, .block_m = rows[m], .block_n = columns[n], .warps = rows[m] / 16,
                      .stages = stages, .split_keys = split_keys, .ctas_per_sm = 1);
        if (ft_config_is_legal(config, request, arch)) return true;
      }
  return false;
}

/* Where the host does not know the lengths, clusters are even work if none waits for another. */
static bool clusters_run_at_once(const struct ft_request *request, const struct ft_arch *arch,
                                 const struct ft_config *config) {
  const struct ft_walks walks = ft_mma_forward_walks_of(request, config, arch);
  return walks.tiles <= ft_clusters_at_once(&walks, arch);
}

enum { LARGEST_CLUSTER = 16 };

/* Configs for few rows. Of equal estimates the earlier one is taken: first come blocks that load
 * many keys ahead, then blocks of which several share a multiprocessor. The last two have no
 * cluster: if one of them is the fastest, none of these configs is the default. */
static const struct ft_mma_forward_knobs of_few_rows[] = {
    {TILE(16, 128), .warps = 4, .stages = 3, .key_warps = 4, .split_keys = 8, .ctas_per_sm = 1},
    {TILE(16, 128), .warps = 8, .stages = 3, .key_warps = 8, .split_keys = 8, .ctas_per_sm = 1},
    {TILE(16, 64), .warps = 4, .stages = 4, .key_warps = 4, .split_keys = 8, .ctas_per_sm = 1},
    {TILE(16, 64), .warps = 4, .stages = 3, .key_warps = 4, .split_keys = 8, .ctas_per_sm = 1},
    {TILE(16, 64), .warps = 4, .stages = 2, .key_warps = 4, .split_keys = 8, .ctas_per_sm = 1},
    {TILE(16, 64), .warps = 4, .stages = 3, .key_warps = 4, .split_keys = 0, .ctas_per_sm = 1},
    {TILE(16, 64), .warps = 4, .stages = 3, .key_warps = 4, .split_keys = 1, .ctas_per_sm = 1},
};

/* Where the last of these has no room in shared memory: sm_86, sm_89 and sm_120, wide heads. */
static const struct ft_mma_forward_knobs of_few_rows_small[] = {
    {TILE(16, 64), .warps = 4, .stages = 2, .key_warps = 4, .split_keys = 8, .ctas_per_sm = 1},
    {TILE(16, 64), .warps = 4, .stages = 2, .key_warps = 4, .split_keys = 0, .ctas_per_sm = 1},
    {TILE(16, 64), .warps = 4, .stages = 2, .key_warps = 4, .split_keys = 1, .ctas_per_sm = 1},
};

/* The same of fp32 and tf32. */
static const struct ft_mma_forward_knobs of_few_rows_fp32[] = {
    {TILE(16, 64), .warps = 4, .stages = 4, .key_warps = 4, .split_keys = 8, .ctas_per_sm = 1},
    {TILE(16, 64), .warps = 4, .stages = 3, .key_warps = 4, .split_keys = 8, .ctas_per_sm = 1},
    {TILE(16, 64), .warps = 4, .stages = 2, .key_warps = 4, .split_keys = 8, .ctas_per_sm = 1},
    {TILE(16, 64), .warps = 4, .stages = 3, .key_warps = 4, .split_keys = 0, .ctas_per_sm = 1},
    {TILE(16, 64), .warps = 4, .stages = 3, .key_warps = 4, .split_keys = 1, .ctas_per_sm = 1},
    {TILE(16, 64), .warps = 4, .stages = 2, .key_warps = 4, .split_keys = 0, .ctas_per_sm = 3},
    {TILE(16, 64), .warps = 4, .stages = 2, .key_warps = 4, .split_keys = 1, .ctas_per_sm = 1},
};

/* The same of K and V in e4m3, of whose steps each has half the bytes. What turns them into
 * operands takes issue slots: more keys of a step, and blocks that share a multiprocessor. In the
 * order that an H200 showed for whole walks, which come first (bench/ledger.md). The largest
 * clusters need time to meet, so they come last. No other family has to be beaten. */
static const struct ft_mma_forward_knobs of_few_rows_cached[] = {
    {TILE(16, 128), .warps = 4, .stages = 3, .key_warps = 4, .split_keys = 0, .ctas_per_sm = 1},
    {TILE(16, 128), .warps = 4, .stages = 3, .key_warps = 4, .split_keys = 2, .ctas_per_sm = 1},
    {TILE(16, 128), .warps = 4, .stages = 3, .q_in_regs = 1, .key_warps = 4, .split_keys = 1,
     .ctas_per_sm = 1},
    {TILE(16, 128), .warps = 8, .stages = 3, .key_warps = 8, .split_keys = 1, .ctas_per_sm = 1},
    {TILE(16, 64), .warps = 4, .stages = 3, .key_warps = 4, .split_keys = 1, .ctas_per_sm = 1},
    {TILE(16, 128), .warps = 4, .stages = 3, .key_warps = 4, .split_keys = 8, .ctas_per_sm = 1},
    {TILE(16, 64), .warps = 4, .stages = 3, .key_warps = 4, .split_keys = 8, .ctas_per_sm = 1},
    {TILE(16, 128), .warps = 8, .stages = 3, .key_warps = 8, .split_keys = 8, .ctas_per_sm = 1},
    {TILE(16, 128), .warps = 8, .stages = 3, .key_warps = 8, .split_keys = 4, .ctas_per_sm = 1},
    {TILE(16, 64), .warps = 4, .stages = 2, .key_warps = 4, .split_keys = 0, .ctas_per_sm = 4},
    {TILE(16, 64), .warps = 4, .stages = 2, .key_warps = 4, .split_keys = 0, .ctas_per_sm = 1},
    {TILE(16, 64), .warps = 4, .stages = 2, .key_warps = 4, .split_keys = 1, .ctas_per_sm = 1},
    {TILE(16, 64), .warps = 4, .stages = 3, .key_warps = 4, .split_keys = LARGEST_CLUSTER,
     .ctas_per_sm = 1},
};

/* The same with Q in e4m3, too: heads are not packed, and each warp takes 32 keys. */
static const struct ft_mma_forward_knobs of_few_rows_e4m3[] = {
    {TILE(16, 128), .warps = 4, .stages = 3, .key_warps = 4, .split_keys = 0, .ctas_per_sm = 1},
    {TILE(16, 128), .warps = 4, .stages = 3, .key_warps = 4, .split_keys = 1, .ctas_per_sm = 1},
    {TILE(16, 128), .warps = 4, .stages = 2, .key_warps = 4, .split_keys = 0, .ctas_per_sm = 2},
    {TILE(16, 128), .warps = 4, .stages = 2, .key_warps = 4, .split_keys = 1, .ctas_per_sm = 2},
};

/* The list for the dtypes of Q, K and V. The first config for 16-bit types is for heads of up to
 * NARROW columns. Wider heads are faster with the second, which has twice the warps. */
static int few_rows_of(const struct ft_mma_forward_knobs **list, const struct ft_request *request,
                       const struct ft_arch *arch) {
  enum { NARROW = 64, LEAST = FT_COUNT(of_few_rows) - 1 };
  const int wide = max_int(request->head_dim, request->head_dim_v) > NARROW;
  if (ft_dtype_is_fp32(request->dtype)) {
    *list = of_few_rows_fp32;
    return FT_COUNT(of_few_rows_fp32);
  }
  if (request->dtype == FT_E4M3) {
    *list = of_few_rows_e4m3;
    return FT_COUNT(of_few_rows_e4m3);
  }
  if (ft_kv_dtype(request) == FT_E4M3) {
    *list = of_few_rows_cached;
    return FT_COUNT(of_few_rows_cached);
  }
  const struct ft_config least = ft_config_make(&ft_mma_forward_family, &of_few_rows[LEAST]);
  if (ft_budget_of(request, &least, arch).smem_bytes > arch->smem_per_block) {
    *list = of_few_rows_small;
    return FT_COUNT(of_few_rows_small);
  }
  *list = of_few_rows + wide;
  return FT_COUNT(of_few_rows) - wide;
}

/* Takes a config whose blocks walk over all keys of a sequence in pages. It is for narrow heads
 * that share no K and V, where wgmma's family would divide the steps equally among blocks. A step
 * has as many keys as a page, since a load from two pages waits for both. false: the request is
 * another one, some multiprocessors would have no work, or some blocks would wait for others to
 * end. */
static bool take_whole_pages(const struct ft_request *request, const struct ft_arch *arch,
                             struct ft_config *config, double *us) {
  enum { NARROW = 64, WIDE_PAGE = 128 };
  static const struct ft_mma_forward_knobs narrow_page = {TILE(32, 64), .warps = 4, .stages = 2,
                                                          .key_warps = 4, .ctas_per_sm = 1},
                                           wide_page = {TILE(32, 128),   .warps = 2,
                                                        .stages = 2,     .q_in_regs = 1,
                                                        .overlap_qk = 1, .ctas_per_sm = 1};
  if (max_int(request->head_dim, request->head_dim_v) > NARROW ||
      request->heads_q != request->heads_kv || request->seqlen_q > narrow_page.block_m ||
      request->mask_rows > 0 || request->score != 0)
    return false;
  *config = ft_config_make(&ft_mma_forward_family,
                           request->pages < WIDE_PAGE ? &narrow_page : &wide_page);
  if (!ft_config_is_legal(config, request, arch)) return false;
  const struct ft_walks walks = ft_mma_forward_walks_of(request, config, arch);
  *us = ft_mma_forward_estimate(request, config, arch);
  const int64_t sms = arch->sm_count;
  return walks.tiles >= sms && walks.tiles <= sms * max_int(1, walks.blocks_per_sm);
}

/* wgmma's family divides the steps of all sequences equally among blocks, and needs a second kernel
 * to put the parts together. Clusters need none, but each divides one sequence, and waits for the
 * longest. That is worth it for a single sequence, or where the longest is short. */
static bool clusters_may_serve_pages(const struct ft_request *request) {
  enum { SHORT = 2048 };
  return request->batch == 1 || (request->seqlen_k > 0 && request->seqlen_k <= SHORT);
}

/* One query on many keys, by blocks that walk over all of them or have parts of equal length: on an
 * H200 they were as fast as those of wgmma's family with 128 work tiles of 8192 keys, and 2 %
 * faster with 512 of 4096 and 8 of 65536. */
static bool is_of_long_walks(const struct ft_request *request, const struct ft_config *config) {
  enum { COLUMNS = 128, KEYS = 4096 };
  const struct ft_mma_forward_knobs *const knobs_of = ft_mma_forward_knobs(config);
  return request->seqlen_q == 1 && request->seqlen_k >= KEYS && request->head_dim == COLUMNS &&
         request->head_dim_v == COLUMNS && request->pages == 0 && ft_heads_are_plain(request) &&
         !request->dropout && !request->window && knobs_of->split_keys <= 1 && knobs_of->pack_gqa;
}

/* One query a sequence, K and V in pages, and very many short walks. A block takes whole walks.
 * With so many, blocks end at about the same time whatever the sequences' lengths are, which the
 * device alone knows. On an H200 this was 2 to 5 % faster than wgmma's equal shares of all steps at
 * 2048 keys, and more at 1024. Pages smaller than a step of 64 keys need more walks for it to pay.
 */
static bool take_many_walks(const struct ft_request *request, const struct ft_arch *arch,
                            struct ft_config *config) {
  enum { COLUMNS = 128, SHORT = 2048, MANY = 7, MANY_FROM_SMALL_PAGES = 15 };
  static const struct ft_mma_forward_knobs whole = {
      TILE(16, 64), .warps = 4, .stages = 3, .key_warps = 4, .pack_gqa = 1, .ctas_per_sm = 1};
  if (request->seqlen_q != 1 || request->seqlen_k == 0 || request->seqlen_k > SHORT ||
      request->head_dim != COLUMNS || request->head_dim_v != COLUMNS || request->score != 0 ||
      request->mask_rows > 0 || request->dropout || request->window)
    return false;
  *config = ft_config_make(&ft_mma_forward_family, &whole);
  const int many = request->pages < whole.block_n ? MANY_FROM_SMALL_PAGES : MANY;
  return ft_pack_of(config, request).heads > 1 && ft_config_is_legal(config, request, arch) &&
         ft_mma_forward_walks_of(request, config, arch).tiles >= (int64_t)many * arch->sm_count;
}

bool ft_mma_forward_of_few_rows(const struct ft_request *request, const struct ft_arch *arch,
                                struct ft_config *config, double *us) {
  enum { WITH_WGMMA = 90, PAGE_OF_WGMMA = 8 };
  /* Less, of two estimates: the earlier loads further ahead, or does not wait for 16 blocks. */
  static const double CLEARLY = 0.95, OF_LARGEST_CLUSTER = 0.85;
  /* By mma.sync alone; of Q in e4m3, too, where wgmma's family has no default. */
  const bool cached = ft_kv_dtype(request) == FT_E4M3;
  const bool small_pages = request->pages > 0 && request->pages < PAGE_OF_WGMMA;
  if (request->seqlen_q == 0 || request->heads_kv == 0 || request->ragged) return false;
  const bool alone =
      cached || small_pages || ft_dtype_is_fp32(request->dtype) || arch->sm != WITH_WGMMA;
  const bool pages_of_wgmma = request->pages > 0 && !alone;
  *us = 0; /* of many walks: measured to be the least; else replaced below */
  if (pages_of_wgmma && take_many_walks(request, arch, config)) return true;
  if (pages_of_wgmma && !clusters_may_serve_pages(request))
    return take_whole_pages(request, arch, config, us);
  const bool packs = ft_dtype_bytes(request->dtype) == 2;
  double least = 0;
  const struct ft_mma_forward_knobs *list;
  const int count = few_rows_of(&list, request, arch);
  /* Heads packed, where their rows fit a block or, of K and V in e4m3, more blocks; then each head
   * with blocks of its own, where the rows of packed ones do not fit one. */
  for (int n = 0; n < 2 * count; ++n) {
    const bool together = n % 2 == 0;
    struct ft_mma_forward_knobs knobs_of = list[n / 2];
    if (request->seqlen_q > knobs_of.block_m) return false;
    knobs_of.pack_gqa = packs;
    struct ft_config few = ft_config_make(&ft_mma_forward_family, &knobs_of);
    const struct ft_pack pack = ft_pack_of(&few, request);
    const bool fit = pack.heads > 1 && request->seqlen_q << pack.bits <= knobs_of.block_m;
    if (together ? pack.heads == 1 || (!fit && !cached) : fit) continue;
    if (!together) {
      knobs_of.pack_gqa = 0;
      few = ft_config_make(&ft_mma_forward_family, &knobs_of);
    }
    if (!ft_config_is_legal(&few, request, arch)) continue;
    if (request->pages > 0 && knobs_of.split_keys > 1 && !clusters_run_at_once(request, arch, &few))
      continue;
    const double estimated = ft_mma_forward_estimate(request, &few, arch);
    const double share = knobs_of.split_keys == LARGEST_CLUSTER ? OF_LARGEST_CLUSTER
                         : cached                               ? 1
                                                                : CLEARLY;
    if (least > 0 && estimated >= share * least) continue;
    least = estimated;
    *config = few;
  }
  *us = least;
  if (least > 0 && (alone || ft_mma_forward_knobs(config)->split_keys > 1)) return true;
  if (least > 0 && is_of_long_walks(request, config)) return true;
  return pages_of_wgmma && take_whole_pages(request, arch, config, us);
}

/* Where the tiles leave blocks without work, they are divided, even if walks are equally long. */
static void divide_few(const struct ft_request *request, const struct ft_arch *arch,
                       struct ft_config *config) {
  struct ft_mma_forward_knobs knobs_of = *ft_mma_forward_knobs(config);
  knobs_of.split_keys = 1;
  const struct ft_config split = ft_config_make(&ft_mma_forward_family, &knobs_of);
  if (request->seqlen_q == 0 || !ft_config_is_legal(&split, request, arch)) return;
  struct ft_walks walks = ft_mma_forward_walks_of(request, &split, arch);
  walks.mixed = false;
  const struct ft_key_parts parts = ft_key_parts_of(&walks, arch);
  if (parts.most > 1 && parts.us < ft_key_parts_divided(&walks, arch, 1).us) *config = split;
}

bool ft_mma_forward_default(const struct ft_request *request, const struct ft_arch *arch,
                            struct ft_config *config) {
  double us;
  if (ft_mma_forward_of_few_rows(request, arch, config, &us)) return true;
  if (take_of_few_tiles(request, arch, config) || take_favourite(request, arch, 0, config) ||
      climb_down(request, arch, 0, config)) {
    divide_few(request, arch, config);
    return true;
  }
  /* Few queries on pages: a rule wants their blocks to share steps (mma_forward.c, shared_steps).
   */
  return take_favourite(request, arch, 1, config) || climb_down(request, arch, 1, config);
}
