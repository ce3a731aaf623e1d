/* test_tensor_maps.c: the tensor maps of a launch, encoded or found again.
 * in -> out: arguments -> maps, always those that an encoding without a cache gives; encodings
 * counted. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/families/wgmma_forward.h"
#include "generator/status.h"
#include "runtime/driver.h"
#include "runtime/map_cache.h"
#include "runtime/families/wgmma_forward.h"
#include "runtime/launch.h"
#include "runtime/tensor_maps.h"
#include "tests/fake/use_fake.h"
#include "tests/fresh_seed.h"
#include "tests/suites.h"

/* ---- a driver that only encodes ---- */

static atomic_int encoded;
static int refuse_next;           /* an encoding fails when this comes down to 0, */
static cu_result refuse_with = 1; /* with this */

/* A picture of the arguments from which each of them can be read. */
static cu_result encode(void *opaque, int type, unsigned rank, void *address,
                        const uint64_t *extents, const uint64_t *strides, const unsigned *box,
                        const unsigned *element_strides, int interleave, int swizzle,
                        int l2_promotion, int fill) {
  uint64_t words[FT_MAP_WORDS] = {(uintptr_t)address};
  atomic_fetch_add(&encoded, 1);
  if (refuse_next > 0 && --refuse_next == 0) return refuse_with;
  for (unsigned n = 0; n < rank; n++) {
    words[1 + n] = extents[n];
    if (n + 1 < rank) words[6 + n] = strides[n];
    words[10 + n / 2] |= (uint64_t)box[n] << n % 2 * 32;
    if (element_strides[n] != 1) return 1;
  }
  words[13] = (uint64_t)type << 32 | rank;
  words[14] = (uint64_t)swizzle << 32 | (unsigned)l2_promotion;
  words[15] = (uint64_t)interleave << 32 | (unsigned)fill;
  memcpy(opaque, words, sizeof words);
  return 0;
}

static cu_result name_error(cu_result error, const char **name) {
  (void)error;
  *name = "CUDA_ERROR_INVALID_VALUE";
  return 0;
}

static const struct ft_driver driver = {
    .tensor_map_encode = encode, .error_name = name_error, .error_string = name_error};

/* ---- launches ---- */

enum { MAPS_BYTES = offsetof(struct ft_tiled_forward_params, rest) };

/* All that maps are made of. */
struct subject {
  struct ft_request request;
  struct ft_config config;
  struct ft_launch launch;
};

static struct subject some_subject(void) {
  struct subject s = {.config =
                          FT_CONFIG(wgmma_forward, .block_m = 128, .block_n = 80, .pack_gqa = 1),
                      .request = {.head_dim = 64, .head_dim_v = 128, .dtype = FT_BF16},
                      .launch = {.family = &ft_wgmma_forward_launch}};
  /* 12 query heads on 3, two of which are packed. */
  s.launch.argument.tiled_forward.rest =
      (struct ft_forward_params){.q = {0x10000, {64 * 12 * 300, 64 * 12, 64}},
                                 .k = {0x20000, {64 * 3 * 500, 64 * 3, 64}},
                                 .v = {0x30000, {128 * 3 * 500, 128 * 3, 128}},
                                 .o = {0x40000, {128 * 12 * 300, 128 * 12, 128}},
                                 .sequence = {.nq = 300 * 2,
                                              .nk = 500,
                                              .batch = 2,
                                              .heads_q = 6,
                                              .heads_kv = 3,
                                              .group = 2,
                                              .pack_code = 1}};
  return s;
}

/* The launch of a subject, whose maps have been made. */
static int map(const struct subject *subject, struct ft_map_cache *cache,
               struct ft_launch *launch) {
  const struct ft_launch_plan plan = {
      .request = &subject->request, .config = &subject->config, .maps = cache};
  *launch = subject->launch;
  memset(&launch->argument, 0x5a, MAPS_BYTES);
  launch->plan = &plan;
  const int status = ft_launch_map_tensors(launch, &driver);
  launch->plan = NULL;
  return status;
}

/* The maps of a subject, which must be those made without a cache; encodings it took. */
static int encodings(const struct subject *subject, struct ft_map_cache *cache) {
  struct ft_launch plain, cached;
  ck_assert_status(map(subject, NULL, &plain), FT_OK);
  const int before = encoded;
  ck_assert_status(map(subject, cache, &cached), FT_OK);
  ck_assert_mem_eq(&cached.argument, &plain.argument, MAPS_BYTES);
  return encoded - before;
}

static struct ft_map_cache *new_cache(void) {
  struct ft_map_cache *const cache = calloc(1, sizeof *cache);
  ck_assert_ptr_nonnull(cache);
  return cache;
}

START_TEST(the_same_tensors_are_encoded_once) {
  struct ft_map_cache *const cache = new_cache();
  const struct subject subject = some_subject();
  ck_assert_int_eq(encodings(&subject, cache), 4);
  for (int i = 0; i < 20; i++) ck_assert_int_eq(encodings(&subject, cache), 0);
  ck_assert_int_eq(encodings(&subject, NULL), 4);
  free(cache);
}
END_TEST

/* How many maps a change must renew; what no map is made of renews none. */
#define CHANGE(count, change)                                                                      \
  do {                                                                                             \
    struct subject s = some_subject();                                                             \
    struct ft_forward_params *const p = &s.launch.argument.tiled_forward.rest;                     \
    struct ft_wgmma_forward_knobs *const knobs = (void *)s.config.knobs;                           \
    struct ft_map_cache *const cache = new_cache();                                                \
    ck_assert_int_eq(encodings(&s, cache), 4);                                                     \
    (void)p, (void)knobs;                                                                          \
    change;                                                                                        \
    const int found = encodings(&s, cache);                                                        \
    ck_assert_msg(found == (count), "%s renews %d maps, not %d", #change, found, count);           \
    free(cache);                                                                                   \
  } while (0)

START_TEST(a_map_is_renewed_by_each_thing_it_is_made_of) {
  CHANGE(1, p->q.data += 16);
  CHANGE(1, p->k.data += 16);
  CHANGE(1, p->v.data += 16);
  CHANGE(1, p->o.data += 16);
  CHANGE(1, p->q.stride.batch += 8);
  CHANGE(1, p->q.stride.row += 8);
  CHANGE(1, p->q.stride.head += 8);
  CHANGE(1, p->k.stride.batch += 8);
  CHANGE(1, p->k.stride.row += 8);
  CHANGE(1, p->k.stride.head += 8);
  CHANGE(1, p->v.stride.row += 8);
  CHANGE(1, p->o.stride.head += 8);
  CHANGE(2, p->sequence.nq += 2);
  CHANGE(2, p->sequence.nk += 1);
  CHANGE(4, p->sequence.batch += 1);
  CHANGE(2, p->sequence.heads_q += 2);
  CHANGE(2, p->sequence.heads_kv += 1);
  CHANGE(2, p->sequence.pack_code = 0);
  CHANGE(2, p->sequence.pack_code = 2 | 1 << 8);
  CHANGE(2, s.request.head_dim += 8);
  CHANGE(2, s.request.head_dim_v += 8);
  CHANGE(4, s.request.dtype = FT_FP16);
  CHANGE(1, knobs->block_m = 192);
  CHANGE(2, knobs->block_n = 96);
  CHANGE(2, knobs->multicast = 1);
  CHANGE(2, knobs->pack_gqa = 0);
  CHANGE(0, p->sequence.group = 1);
  CHANGE(0, p->softmax.scale = 3);
  CHANGE(0, p->lse = 0x50000);
}
END_TEST

/* Tensors that change places are other tensors: each has slots of its own. */
START_TEST(a_tensor_finds_its_own_maps_alone) {
  struct ft_map_cache *const cache = new_cache();
  struct ft_tensor_map map = {{1}}, found;
  const struct ft_map_key key = {.address = 0x1000, .dimensions = 4};
  for (int tensor = 0; tensor < FT_MAP_TENSORS; tensor++) {
    ck_assert(!ft_map_cache_find(cache, tensor, &key, &found));
    ft_map_cache_keep(cache, tensor, &key, &map);
    ck_assert(ft_map_cache_find(cache, tensor, &key, &found));
    ck_assert_mem_eq(&found, &map, sizeof map);
  }
  free(cache);
}
END_TEST

START_TEST(every_bit_of_a_key_counts) {
  struct ft_map_cache *const cache = new_cache();
  struct ft_map_key key, other;
  struct ft_tensor_map map, found;
  memset(&key, 0x5a, sizeof key);
  memset(&map, 0xa5, sizeof map);
  ft_map_cache_keep(cache, 0, &key, &map);
  for (size_t bit = 0; bit < 8 * sizeof key; bit++) {
    unsigned char bytes[sizeof key];
    memcpy(bytes, &key, sizeof key);
    bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    memcpy(&other, bytes, sizeof other);
    ck_assert_msg(!ft_map_cache_find(cache, 0, &other, &found), "bit %zu is not looked at", bit);
  }
  ck_assert(ft_map_cache_find(cache, 0, &key, &found));
  ck_assert_mem_eq(&found, &map, sizeof map);
  /* What calloc left there is no entry. */
  memset(&key, 0, sizeof key);
  ck_assert(!ft_map_cache_find(cache, 0, &key, &found));
  free(cache);
}
END_TEST

static struct subject moved(int set) {
  struct subject s = some_subject();
  struct ft_forward_params *const p = &s.launch.argument.tiled_forward.rest;
  const uint64_t by = (uint64_t)set << 20;
  p->q.data += by, p->k.data += by, p->v.data += by, p->o.data += by;
  return s;
}

START_TEST(as_many_sets_alternate_as_there_are_slots) {
  struct ft_map_cache *const cache = new_cache();
  for (int round = 0; round < 3; round++)
    for (int set = 0; set < FT_MAP_SLOTS; set++) {
      const struct subject subject = moved(set);
      ck_assert_int_eq(encodings(&subject, cache), round == 0 ? 4 : 0);
    }
  /* One more takes the place of the oldest alone. */
  for (int set = FT_MAP_SLOTS; set > 0; set--) {
    const struct subject subject = moved(set);
    ck_assert_int_eq(encodings(&subject, cache), set == FT_MAP_SLOTS ? 4 : 0);
  }
  const struct subject oldest = moved(0);
  ck_assert_int_eq(encodings(&oldest, cache), 4);
  free(cache);
}
END_TEST

/* A line of L2 has 128 bytes. Where heads lie beside each other, two of them share a line if a row
 * has 96 bytes, and none do if it has 128 or 256. With a single head no line is shared. Two heads
 * share even a sector of 32 bytes if a row has 80. */
START_TEST(heads_that_share_lines_and_are_apart_are_read_by_halves_of_them) {
  enum { HALVES = 1, LINES = 2 };
  static const struct {
    int columns, heads;
    enum ft_dtype dtype;
    bool heads_apart;
    int promotion;
  } cases[] = {{48, 8, FT_BF16, true, HALVES},  {48, 8, FT_BF16, false, LINES},
               {48, 1, FT_BF16, true, LINES},   {64, 8, FT_BF16, true, LINES},
               {160, 2, FT_FP16, true, HALVES}, {128, 8, FT_FP16, true, LINES},
               {64, 8, FT_E4M3, true, HALVES},  {128, 8, FT_E4M3, true, LINES},
               {40, 8, FT_BF16, true, LINES},   {80, 8, FT_E4M3, true, LINES}};
  for (int n = 0; n < FT_COUNT(cases); n++) {
    const struct ft_arg_tensor pool = {
        0x10000, {1 << 20, cases[n].heads * cases[n].columns, cases[n].columns}};
    struct ft_tensor_map map;
    const struct ft_mapped tensor = {.name = "k",
                                     .map = &map,
                                     .tensor = &pool,
                                     .columns = cases[n].columns,
                                     .rows = 64,
                                     .heads = cases[n].heads,
                                     .batch = 1,
                                     .box_rows = 64,
                                     .ragged = true,
                                     .of_query = 1,
                                     .dtype = cases[n].dtype,
                                     .heads_apart = cases[n].heads_apart};
    ck_assert_status(ft_map_tensors(&tensor, 1, NULL, &driver), FT_OK);
    ck_assert_msg((int)(map.opaque[14] & UINT32_MAX) == cases[n].promotion, "case %d", n);
  }
}
END_TEST

START_TEST(a_refused_map_is_not_kept) {
  struct ft_map_cache *const cache = new_cache();
  const struct subject subject = some_subject();
  struct ft_launch launch;
  for (int i = 0; i < 2; i++) {
    refuse_next = i == 0 ? 2 : 1; /* k; Q is there at the second try */
    ck_assert_status(map(&subject, cache, &launch), FT_E_ARGUMENT);
    ck_assert_detail("arguments.k with strides 96000, 192, 64");
  }
  ck_assert_int_eq(encodings(&subject, cache), 3);
  ck_assert_int_eq(encodings(&subject, cache), 0);
  free(cache);
}
END_TEST

/* The fault of a kernel before is told by the next call of the driver. */
START_TEST(a_fault_of_before_is_not_blamed_on_the_arguments) {
  const struct subject subject = some_subject();
  struct ft_launch launch;
  refuse_next = 1;
  refuse_with = 700;
  ck_assert_status(map(&subject, NULL, &launch), FT_E_DEVICE);
  ck_assert(strstr(ft_detail(), "arguments.") == NULL);
  refuse_with = 1;
}
END_TEST

/* ---- threads ---- */

struct worker {
  pthread_t thread;
  struct ft_map_cache *cache;
  uint64_t state;
  int wrong, failed;
};

static uint64_t draw(uint64_t *state) { /* xorshift64 */
  *state ^= *state << 13;
  *state ^= *state >> 7;
  return *state ^= *state << 17;
}

/* More sets than slots, so that entries are overwritten while they are read. */
static void *map_many(void *payload) {
  enum { ROUNDS = 10000, SETS = FT_MAP_SLOTS + 4 };
  struct worker *const worker = payload;
  struct subject sets[SETS];
  for (int set = 0; set < SETS; set++) {
    sets[set] = moved(set);
    /* The same tensors again, but one that is longer. */
    if (set % 2) {
      sets[set] = moved(set - 1);
      sets[set].launch.argument.tiled_forward.rest.sequence.nk += set;
    }
    struct ft_launch launch;
    worker->failed += map(&sets[set], NULL, &launch) != FT_OK;
    sets[set].launch = launch;
  }
  for (int round = 0; round < ROUNDS; round++) {
    const struct subject *const subject = &sets[draw(&worker->state) % SETS];
    struct ft_launch launch;
    worker->failed += map(subject, worker->cache, &launch) != FT_OK;
    worker->wrong += memcmp(&launch.argument, &subject->launch.argument, MAPS_BYTES) != 0;
  }
  return NULL;
}

/* Few keys, kept without end: most entries that are read are being written, too. */
static void *overwrite(void *payload) {
  enum { ROUNDS = 200000, KEYS = 3 };
  struct worker *const worker = payload;
  for (int round = 0; round < ROUNDS; round++) {
    const uint64_t bits = draw(&worker->state);
    const struct ft_map_key wanted = {.address = bits % KEYS, .dimensions = 4},
                            kept = {.address = (bits >> 32) % KEYS, .dimensions = 4};
    struct ft_tensor_map map;
    if (ft_map_cache_find(worker->cache, 0, &wanted, &map))
      for (int i = 0; i < FT_MAP_WORDS; i++) worker->wrong += map.opaque[i] != wanted.address;
    for (int i = 0; i < FT_MAP_WORDS; i++) map.opaque[i] = kept.address;
    ft_map_cache_keep(worker->cache, 0, &kept, &map);
  }
  return NULL;
}

static void run_workers(void *work(void *)) {
  enum { WORKERS = 8 };
  struct worker workers[WORKERS];
  struct ft_map_cache *const cache = new_cache();
  const uint64_t seed = fresh_seed();
  for (int i = 0; i < WORKERS; i++) {
    workers[i] = (struct worker){.cache = cache, .state = seed + (uint64_t)i * 0x9e3779b97f4a7c15u};
    ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
  }
  for (int i = 0; i < WORKERS; i++) {
    pthread_join(workers[i].thread, NULL);
    ck_assert_msg(workers[i].wrong == 0 && workers[i].failed == 0, "%d wrong, %d failed, seed %llu",
                  workers[i].wrong, workers[i].failed, (unsigned long long)seed);
  }
  free(cache);
}

START_TEST(many_threads_find_what_they_would_have_made) {
  run_workers(map_many);
}
END_TEST

START_TEST(an_entry_half_written_is_never_found) {
  run_workers(overwrite);
}
END_TEST

Suite *make_tensor_maps_suite(void) {
  Suite *const suite = suite_create("tensor_maps");
  TCase *const tests = tcase_create("tensor_maps");
  tcase_set_timeout(tests, 60);
  tcase_add_test(tests, the_same_tensors_are_encoded_once);
  tcase_add_test(tests, a_map_is_renewed_by_each_thing_it_is_made_of);
  tcase_add_test(tests, a_tensor_finds_its_own_maps_alone);
  tcase_add_test(tests, every_bit_of_a_key_counts);
  tcase_add_test(tests, as_many_sets_alternate_as_there_are_slots);
  tcase_add_test(tests, heads_that_share_lines_and_are_apart_are_read_by_halves_of_them);
  tcase_add_test(tests, a_refused_map_is_not_kept);
  tcase_add_test(tests, a_fault_of_before_is_not_blamed_on_the_arguments);
  tcase_add_test(tests, many_threads_find_what_they_would_have_made);
  tcase_add_test(tests, an_entry_half_written_is_never_found);
  suite_add_tcase(suite, tests);
  return suite;
}
