/* map_cache.c: the tensor maps that a plan has encoded last, found and kept without a lock.
 * in -> out: key -> map.
 *
 * Each slot is guarded by its version. Words are stored with release order and loaded with acquire
 * order: a thread that has loaded a word of a newer entry then loads the newer version, too.
 * (Fences would do the same, but ThreadSanitizer does not know them.) */
#include "runtime/map_cache.h"

#include <string.h>

static bool has_key(struct ft_map_slot *slot, const uint64_t *words) {
  for (int i = 0; i < FT_MAP_KEY_WORDS; i++)
    if (atomic_load_explicit(&slot->key[i], memory_order_acquire) != words[i]) return false;
  return true;
}

static bool read_slot(struct ft_map_slot *slot, const uint64_t *words, struct ft_tensor_map *map) {
  const uint64_t version = atomic_load_explicit(&slot->version, memory_order_acquire);
  if (version == 0 || version % 2 != 0 || !has_key(slot, words)) return false;
  for (int i = 0; i < FT_MAP_WORDS; i++)
    map->opaque[i] = atomic_load_explicit(&slot->map[i], memory_order_acquire);
  return atomic_load_explicit(&slot->version, memory_order_relaxed) == version;
}

bool ft_map_cache_find(struct ft_map_cache *cache, int tensor, const struct ft_map_key *key,
                       struct ft_tensor_map *map) {
  uint64_t words[FT_MAP_KEY_WORDS];
  memcpy(words, key, sizeof words);
  for (int i = 0; i < FT_MAP_SLOTS; i++)
    if (read_slot(&cache->slots[tensor][i], words, map)) return true;
  return false;
}

void ft_map_cache_keep(struct ft_map_cache *cache, int tensor, const struct ft_map_key *key,
                       const struct ft_tensor_map *map) {
  uint64_t words[FT_MAP_KEY_WORDS];
  memcpy(words, key, sizeof words);
  const unsigned next = atomic_fetch_add_explicit(&cache->next[tensor], 1, memory_order_relaxed);
  struct ft_map_slot *const slot = &cache->slots[tensor][next % FT_MAP_SLOTS];
  uint64_t version = atomic_load_explicit(&slot->version, memory_order_relaxed);
  if (version % 2 != 0 ||
      !atomic_compare_exchange_strong_explicit(&slot->version, &version, version + 1,
                                               memory_order_acquire, memory_order_relaxed))
    return;
  for (int i = 0; i < FT_MAP_KEY_WORDS; i++)
    atomic_store_explicit(&slot->key[i], words[i], memory_order_release);
  for (int i = 0; i < FT_MAP_WORDS; i++)
    atomic_store_explicit(&slot->map[i], map->opaque[i], memory_order_release);
  atomic_store_explicit(&slot->version, version + 2, memory_order_release);
}
