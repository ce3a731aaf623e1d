/* store_layers.c: the read-only layers below the user's files.
 * in -> out: folders -> files *.fatune, each judged, opened or refused. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/store_parts.h"
#include "generator/status.h"

static const char ENDING[] = ".fatune";

static int is_layer(const struct dirent *entry) {
  const size_t length = strlen(entry->d_name), ending = sizeof ENDING - 1;
  return length > ending && strcmp(entry->d_name + length - ending, ENDING) == 0;
}

/* A list that has no room for the file is short of it; the file is used all the same. */
static void note(struct ft_store *store, const char *path, bool used, const char *why) {
  struct ft_store_layer *const grown =
      realloc(store->found, (size_t)(store->found_count + 1) * sizeof *grown);
  if (!grown) return;
  store->found = grown;
  struct ft_store_layer *const layer = &grown[store->found_count];
  *layer = (struct ft_store_layer){strdup(path), used, strdup(why)};
  if (layer->path && layer->why) {
    store->found_count++;
    return;
  }
  free(layer->path);
  free(layer->why);
}

static int open_admitted(struct ft_database *layer, const char *path,
                         struct ft_admission *admission) {
  void *const bytes = admission->bytes;
  admission->bytes = NULL; /* taken */
  return bytes ? ft_database_open_bytes(layer, path, bytes, admission->size)
               : ft_database_open(layer, admission->path, FT_DATABASE_FROZEN);
}

static void add_layer(struct ft_store *store, const char *path) {
  struct ft_database *const layer = &store->layers[store->layer_count];
  struct ft_admission admission;
  int status = ft_trust_admit(&store->trust, path, &admission);
  if (status == FT_OK) status = open_admitted(layer, path, &admission);
  note(store, path, status == FT_OK, status == FT_OK ? admission.how : ft_detail());
  if (status == FT_OK)
    store->layer_count++;
  else
    ft_store_fault(store, ft_detail());
  ft_admission_free(&admission);
}

static void pass_over(struct ft_store *store, const char *path) {
  ft_fail(FT_E_CACHE, "'%s' is not used: there are %d layers before it, which is the most", path,
          FT_LAYERS_MAX);
  note(store, path, false, ft_detail());
  ft_store_fault(store, ft_detail());
}

/* By name, so that the order of layers does not depend on the file system. Beside the library, a
 * program may have the name of its folder. */
static void add_folder(struct ft_store *store, const char *folder, bool is_named) {
  struct dirent **files = NULL;
  const int count = scandir(folder, &files, is_layer, alphasort);
  if (count < 0 && errno != ENOENT && (is_named || errno != ENOTDIR)) {
    ft_fail(FT_E_CACHE, "layers in '%s' are not used: %s", folder, strerror(errno));
    ft_store_fault(store, ft_detail());
  }
  for (int i = 0; i < count; i++) {
    char *path = NULL;
    if (asprintf(&path, "%s/%s", folder, files[i]->d_name) < 0) {
      path = NULL;
      ft_store_fault(store, "a layer is not used: no memory for its path");
    } else if (store->layer_count < FT_LAYERS_MAX) {
      add_layer(store, path);
    } else {
      pass_over(store, path);
    }
    free(path);
    free(files[i]);
  }
  if (count >= 0) free(files);
}

int ft_store_add_layers(struct ft_store *store, const struct ft_store_options *options) {
  const char *folders = options->system_path;
  if (!folders) folders = secure_getenv("FATUNE_SYSTEM_PATH");
  char *const copy = strdup(folders ? folders : "");
  if (!copy) return ft_fail(FT_E_MEMORY, "no memory for the system path");
  if (store->trust.misnamed[0])
    ft_store_misnamed(store, "FATUNE_TRUST", store->trust.misnamed,
                      "any, owner, signed; taken as signed");
  char *rest = copy;
  for (char *folder = strsep(&rest, ":"); folder; folder = strsep(&rest, ":"))
    if (folder[0]) add_folder(store, folder, true);
  free(copy);
  if (options->library_folder) add_folder(store, options->library_folder, false);
  return FT_OK;
}

/* FATUNE_SHIPPED: whether the trials inside the library are looked at. */
static bool is_wanted(struct ft_store *store) {
  const char *const given = secure_getenv("FATUNE_SHIPPED");
  if (!given || !given[0] || strcmp(given, "on") == 0) return true;
  if (strcmp(given, "off") == 0) return false;
  ft_store_misnamed(store, "FATUNE_SHIPPED", given, "on, off; taken as on");
  return true;
}

void ft_store_add_shipped(struct ft_store *store, const struct ft_store_options *options) {
  static const char name[] = "shipped with the library";
  if (options->shipped_size == 0 || !is_wanted(store)) return;
  struct ft_database *const layer = &store->layers[store->layer_count];
  void *const bytes = ft_database_bytes(options->shipped, options->shipped_size);
  int status = bytes ? FT_OK : FT_E_MEMORY;
  if (bytes) status = ft_database_open_bytes(layer, name, bytes, options->shipped_size);
  note(store, name, status == FT_OK, status == FT_OK ? "inside it" : ft_detail());
  if (status != FT_OK) {
    ft_store_fault(store, ft_detail());
    return;
  }
  store->layer_count++;
  store->shipped_layer = store->layer_count;
}

bool ft_store_is_shipped(const struct ft_store *store, int layer) {
  return layer > 0 && layer == store->shipped_layer;
}

void ft_store_close_layers(struct ft_store *store) {
  for (int i = 0; i < store->layer_count; i++) ft_database_close(&store->layers[i]);
  for (int i = 0; i < store->found_count; i++) {
    free(store->found[i].path);
    free(store->found[i].why);
  }
  free(store->found);
  ft_trust_end(&store->trust);
}

const struct ft_store_layer *ft_store_layers(const struct ft_store *store, int *count) {
  *count = store->found_count;
  return store->found;
}

const char *ft_store_trust(const struct ft_store *store) {
  return ft_trust_name(store->trust.policy);
}
