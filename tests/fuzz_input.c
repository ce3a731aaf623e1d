/* fuzz_input.c: one input of the fuzzer.
 * in -> out: "kind\n" and bytes -> the reader of that kind has taken or refused them. */
#include "tests/fuzz_input.h"

#include <argp.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/store.h"
#include "generator/score/score.h"
#include "generator/status.h"
#include "runtime/image.h"
#include "tuner/cli/cli_options.h"

enum { TEXT_MOST = 4096, WORDS_MOST = 32 };

static void must(bool good) {
  if (!good) abort();
}

/* Printed, read and printed again it is the same. */
#define ROUND_TRIP(type, parse, print)                                                             \
  static void read_##type(const char *text, size_t size) {                                         \
    struct ft_##type first, second;                                                                \
    struct ft_text once = FT_TEXT_INIT, twice = FT_TEXT_INIT;                                      \
    (void)size;                                                                                    \
    memset(&first, 0, sizeof first);                                                               \
    memset(&second, 0, sizeof second);                                                             \
    if (parse(&first, text) != FT_OK) return;                                                      \
    print(&first, &once);                                                                          \
    must(ft_text_status(&once) == FT_OK && parse(&second, once.data) == FT_OK);                    \
    print(&second, &twice);                                                                        \
    must(ft_text_status(&twice) == FT_OK && strcmp(once.data, twice.data) == 0);                   \
    ft_text_free(&once);                                                                           \
    ft_text_free(&twice);                                                                          \
  }
ROUND_TRIP(request, ft_request_parse, ft_request_print)
ROUND_TRIP(config, ft_config_parse, ft_config_print)
ROUND_TRIP(trial, ft_trial_parse, ft_trial_print)
ROUND_TRIP(kernel, ft_kernel_parse, ft_kernel_print)

static void read_image(const char *bytes, size_t size) {
  struct ft_image_resources resources;
  ft_image_read(bytes, size, "fatune_kernel", &resources);
  ft_image_lacks(bytes, size, "fatune_kernel");
}

static void read_score(const char *text, size_t size) {
  struct ft_score score;
  if (ft_score_read(&score, "fuzzed", text, size) == FT_OK) ft_score_free(&score);
}

static void read_options(const char *text, size_t size) {
  static const struct cli_syntax tune = {"fatune tune", "REQUEST...", "Tune.",
                                         CLI_REQUESTS | CLI_GPU | CLI_DEVICE | CLI_SEARCH |
                                             CLI_SEED};
  char copy[TEXT_MOST], name[] = "fatune", *words[WORDS_MOST + 1] = {name}, *rest = copy;
  struct cli_options options;
  int count = 1;
  snprintf(copy, sizeof copy, "%.*s", (int)size, text);
  for (char *word; count < WORDS_MOST && (word = strsep(&rest, "\n"));)
    if (word[0]) words[count++] = word;
  (void)cli_options_parse(&options, &tune, count, words,
                          ARGP_NO_EXIT | ARGP_NO_ERRS | ARGP_NO_HELP);
  cli_options_free(&options);
}

/* ---- stores; without Check, whose assertions end a process that runs no suite ---- */

static char folder[] = "/tmp/fatune-fuzz-XXXXXX", spoilt_path[64];
static unsigned char sound[1 << 17];
static size_t sound_bytes;

static void ignore(void *payload, const char *message) {
  (void)payload;
  (void)message;
}

static int remove_entry(const char *entry, const struct stat *state, int kind, struct FTW *where) {
  (void)state;
  (void)kind;
  (void)where;
  return remove(entry);
}

static void remove_folder(void) {
  nftw(folder, remove_entry, 4, FTW_DEPTH | FTW_PHYS);
}

/* A file of another's with a kernel in it. */
static void make_sound(void) {
  static char image[3000] = "image";
  struct ft_kernel kernel = {.source = ft_digest_of("source", 6),
                             .target = "sm_90",
                             .nvrtc = "13.0.88",
                             .threads = 128,
                             .image = image,
                             .image_size = sizeof image,
                             .image_digest = ft_digest_of(image, sizeof image)};
  must(mkdtemp(folder) != NULL && atexit(remove_folder) == 0);
  const struct ft_store_options options = {.folder = folder, .warn = ignore};
  struct ft_store *store = NULL;
  kernel.key = ft_kernel_key(&kernel.source, kernel.nvrtc);
  must(ft_store_open(&store, &options) == FT_OK && ft_store_kernel_put(store, &kernel) == FT_OK);
  FILE *const file = fopen(ft_store_kernels_path(store), "rb");
  must(file != NULL);
  ft_store_close(store); /* which writes the log back */
  sound_bytes = fread(sound, 1, sizeof sound, file);
  must(fclose(file) == 0 && sound_bytes > 8192 && sound_bytes < sizeof sound);
  snprintf(spoilt_path, sizeof spoilt_path, "%s/spoilt.db", folder);
}

static void read_store(const char *changes, size_t size) {
  static const struct ft_store_options options = {.memory_only = 1, .warn = ignore};
  if (sound_bytes == 0) make_sound();
  unsigned char *const spoilt = malloc(sound_bytes);
  must(spoilt != NULL);
  memcpy(spoilt, sound, sound_bytes);
  for (size_t n = 0; n + 2 < size; n += 3) {
    const size_t place = (size_t)(unsigned char)changes[n] << 8 | (unsigned char)changes[n + 1];
    spoilt[place % sound_bytes] = (unsigned char)changes[n + 2];
  }
  FILE *const file = fopen(spoilt_path, "wb");
  must(file != NULL && fwrite(spoilt, 1, sound_bytes, file) == sound_bytes && fclose(file) == 0);
  free(spoilt);
  struct ft_store *store = NULL;
  int64_t trials = 0, kernels = 0;
  must(ft_store_open(&store, &options) == FT_OK);
  (void)ft_store_merge(store, spoilt_path, &trials, &kernels);
  ft_store_close(store);
}

/* ---- all ---- */

static const struct kind {
  const char *name;
  void (*read)(const char *bytes, size_t size); /* a NUL behind them is not counted */
} kinds[] = {{"request\n", read_request}, {"config\n", read_config}, {"trial\n", read_trial},
             {"kernel\n", read_kernel},   {"image\n", read_image},   {"options\n", read_options},
             {"score\n", read_score},     {"store\n", read_store}};

bool fuzz_input(const unsigned char *input, size_t size) {
  for (size_t n = 0; n < sizeof kinds / sizeof *kinds; n++) {
    const size_t head = strlen(kinds[n].name);
    if (size < head || memcmp(input, kinds[n].name, head) != 0) continue;
    char *const bytes = calloc(size - head + 1, 1);
    must(bytes != NULL);
    memcpy(bytes, input + head, size - head);
    kinds[n].read(bytes, size - head);
    free(bytes);
    return true;
  }
  return false;
}
