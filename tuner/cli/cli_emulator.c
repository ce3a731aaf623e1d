/* cli_emulator.c: what the program says of an emulated GPU, and what it asks of one.
 * in -> out: target, request -> words, JSON; a request that a CPU gets through. */
#include "tuner/cli/cli_emulator.h"

#include "generator/status.h"
#include "runtime/emulator/cxx_search.h"

/* Multiply-adds of one problem. A core emulates some 300 million of them a second, and all problems
 * that a request is checked with come to about ten times the first one. */
static const double WORK_MOST = 250e6;

/* Several tiles of the usual sizes in each direction, the last one cut; two batch entries and two
 * head groups, so that every stride matters. */
enum { BATCH = 2, HEADS_KV = 2, HEADS_Q = 4, SEQLEN = 229 };

int cli_emulator_ready(const struct cli_target *target) {
  char name[64], path[512];
  return target->emulated ? ft_emulator_compiler(name, path) : FT_OK;
}

void cli_emulator_words(const struct cli_target *target, char words[192]) {
  char name[64], path[512];
  const bool known = ft_emulator_compiler(name, path) == FT_OK;
  snprintf(words, 192, "%s on this CPU (%s)", target->arch.name, known ? name : "no C++ compiler");
}

void cli_emulator_tell(struct cli *cli, const struct cli_target *target) {
  char name[64], path[512], words[192];
  cli_json(cli, "emulated", json_boolean(target->emulated));
  if (!target->emulated) return;
  const bool known = ft_emulator_compiler(name, path) == FT_OK;
  cli_json(cli, "cxx", known ? cli_json_text(name) : json_null());
  cli_emulator_words(target, words);
  cli_field(cli, "emulated", "yes, %s; nothing here is a time", words);
}

/* Tiles are computed whole, however little of them is used; the softmax of a score counts as 32. */
static double work_of(const struct ft_request *asked) {
  const struct ft_request alike = ft_request_alike(asked), *const request = &alike;
  enum { TILE_ROWS = 128, TILE_KEYS = 64, SOFTMAX = 32 };
  const int64_t rows = (request->seqlen_q + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS;
  const int64_t keys = (request->seqlen_k + TILE_KEYS - 1) / TILE_KEYS * TILE_KEYS;
  return (double)request->batch * request->heads_q * (double)rows * (double)keys *
         (request->head_dim + request->head_dim_v + SOFTMAX);
}

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* With a mask: two of its blocks in each direction, unless they are huge. */
static int64_t length_most(int block) {
  enum { HUGE_BLOCK = 256 };
  const int64_t two_blocks = block + 45;
  return block <= HUGE_BLOCK && two_blocks > SEQLEN ? two_blocks : SEQLEN;
}

/* Some of them empty, others of several tiles. */
static void cut_sequences(const struct ft_request *asked, struct ft_request *cut) {
  enum { SEQUENCES = 7, ROWS = 611 };
  if (!asked->ragged) return;
  cut->batch = least(asked->batch, SEQUENCES);
  cut->seqlen_q = least(asked->seqlen_q, ROWS);
  cut->seqlen_k = least(asked->seqlen_k, ROWS);
}

bool cli_emulator_cut(const struct ft_request *asked, struct ft_request *cut) {
  *cut = *asked;
  if (work_of(asked) <= WORK_MOST) return false;
  const int group = asked->heads_q / asked->heads_kv;
  cut->batch = least(asked->batch, BATCH);
  cut->heads_kv = (int)least(asked->heads_kv, HEADS_KV);
  cut->heads_q = cut->heads_kv * (int)least(group, HEADS_Q / cut->heads_kv);
  cut->seqlen_q = least(asked->seqlen_q, length_most(asked->mask_rows));
  cut->seqlen_k = least(asked->seqlen_k, length_most(asked->mask_cols));
  cut_sequences(asked, cut);
  const bool sparse = asked->mask_rows > 0 && asked->mask_density < 0.5;
  if (sparse) cut->mask_density = 0.5; /* of a few blocks, or none may be left */
  cut->window_left = least(asked->window_left, cut->seqlen_k / 3); /* or it would hide nothing */
  cut->window_right = least(asked->window_right, cut->seqlen_k / 3);
  return true;
}
