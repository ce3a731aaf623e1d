/* score_lab.c: random score functions and what they are computed with.
 * in -> out: seed -> Lua text; values of scalars and tensors. */
#include "tests/score_lab.h"

#include <string.h>

uint64_t lab_random(uint64_t *random) { /* splitmix64 */
  uint64_t x = *random += 0x9E3779B97F4A7C15u;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

struct maker {
  uint64_t random;
  struct ft_text *text;
};

static int pick(struct maker *maker, int count) {
  return (int)(lab_random(&maker->random) % (uint64_t)count);
}

static void make_float(struct maker *maker, int depth);
static void make_int(struct maker *maker, int depth);
static void make_bool(struct maker *maker, int depth);

/* Kinds: f float, i integer, b bool; other characters stand for themselves. */
static void fill_in(struct maker *maker, const char *pattern, int depth) {
  for (; *pattern != '\0'; ++pattern) {
    switch (*pattern) {
    case 'F': make_float(maker, depth); break;
    case 'I': make_int(maker, depth); break;
    case 'B': make_bool(maker, depth); break;
    default: ft_text_append(maker->text, pattern, 1);
    }
  }
}

#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))

static void make_float(struct maker *maker, int depth) {
  static const char *const leaves[] = {"s",        "s",    "cap",           "scale",
                                       "slope(h)", "0.37", "bias(h, i, j)", "1.5"};
  static const char *const nodes[] = {"(F + F)",
                                      "(F - F)",
                                      "(F * F)",
                                      "(F / (1.25 + abs(F)))",
                                      "- F",
                                      "abs(F)",
                                      "min(F, F)",
                                      "max(F, F, 0.3)",
                                      "tanh(F)",
                                      "sigmoid(F)",
                                      "exp(min(F, 2))",
                                      "log(abs(F) + 0.5)",
                                      "where(B, F, F)",
                                      "where(B, F, I)",
                                      "(F + I)",
                                      "(F * I * 0.01)",
                                      "slope(I % 6)",
                                      "pair(I % 20, h)",
                                      "table(I)",
                                      "bias(I, i, j - I % 3)",
                                      "(I / (2 + I % 3))",
                                      "float(I)",
                                      "tanh(F / cap) * cap"};
  if (depth == 0 || pick(maker, 6) == 0)
    fill_in(maker, leaves[pick(maker, COUNT(leaves))], 0);
  else
    fill_in(maker, nodes[pick(maker, COUNT(nodes))], depth - 1);
}

static void make_int(struct maker *maker, int depth) {
  static const char *const leaves[] = {"i",     "j",    "h",           "b",       "kv", "nq", "nk",
                                       "heads", "step", "document(j)", "wide(i)", "3",  "-2", "7"};
  static const char *const nodes[] = {
      "(I + I)",   "(I - I)",      "(I * 3)",        "(I % 40 * (I % 9))", "(I // 3)", "(I % 8)",
      "(I // -5)", "(I % -7)",     "(I // step)",    "(I % (abs(I) + 1))", "- I",      "abs(I)",
      "min(I, I)", "max(I, I, 2)", "where(B, I, I)", "floor(s * 3 + 0.3)"};
  if (depth == 0 || pick(maker, 4) == 0)
    fill_in(maker, leaves[pick(maker, COUNT(leaves))], 0);
  else
    fill_in(maker, nodes[pick(maker, COUNT(nodes))], depth - 1);
}

static void make_bool(struct maker *maker, int depth) {
  static const char *const leaves[] = {"j <= i", "flag(h, i)", "s < 0.3", "s >= -1.7",
                                       "document(j) == wide(i)"};
  static const char *const nodes[] = {"I < I",   "I <= I",     "I > I",       "I >= I",
                                      "I == I",  "I ~= I",     "(B and B)",   "(B or B)",
                                      "not (B)", "(B) == (B)", "I < I and B", "B or I % 2 == 0"};
  if (depth == 0 || pick(maker, 5) == 0)
    fill_in(maker, leaves[pick(maker, COUNT(leaves))], 0);
  else
    fill_in(maker, nodes[pick(maker, COUNT(nodes))], depth - 1);
}

/* A bool of positions alone. */
static void make_visible(struct maker *maker) {
  struct ft_text text = FT_TEXT_INIT;
  struct maker own = {.random = maker->random, .text = &text};
  do {
    ft_text_clear(&text);
    make_bool(&own, 3);
  } while (strstr(text.data, "s <") || strstr(text.data, "s >") || strstr(text.data, "s *"));
  ft_text_append(maker->text, text.data, text.length);
  ft_text_free(&text);
}

void lab_random_score(uint64_t seed, struct ft_text *text) {
  struct maker maker = {.random = seed, .text = text};
  ft_text_add(text,
              "local cap, scale = scalar('cap'), scalar('scale')\n"
              "local step = scalar('step', 'int')\n"
              "local slope = tensor('slope', 'fp32', heads)\n"
              "local bias = tensor('bias', 'bf16', heads, nq, nk)\n"
              "local table = tensor('table', 'fp16', %d)\n"
              "local pair = tensor('pair', 'fp32', nk, heads)\n"
              "local document = tensor('document', 'uint8', nk)\n"
              "local wide = tensor('wide', 'int64', nq)\n"
              "local flag = tensor('flag', 'bool', heads, nq)\n"
              "score = s * 0.5 + ",
              LAB_TABLE_SIZE);
  make_float(&maker, 5);
  ft_text_add(text, "\nvisible = ");
  make_visible(&maker);
  ft_text_add(text, "\n");
}

/* ---- values ---- */

static float slopes[LAB_HEADS], pairs[LAB_NK * LAB_HEADS];
static uint16_t biases[LAB_HEADS * LAB_NQ * LAB_NK], table_entries[LAB_TABLE_SIZE];
static uint8_t documents[LAB_NK], flags[LAB_HEADS * LAB_NQ];
static int64_t wides[LAB_NQ];

/* -2 to 2 in steps of 1/64. */
static float coarse(uint64_t *random) {
  return (float)((int)(lab_random(random) % 257) - 128) / 64;
}

static uint16_t bf16_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)(bits >> 16);
}

/* Finite ones of all kinds: the exponent is below 2^3. */
static uint16_t some_fp16(uint64_t *random) {
  const unsigned bits = (unsigned)lab_random(random);
  return (uint16_t)((bits & 0x83FFu) | (bits >> 16) % 18 << 10);
}

void lab_fill(uint64_t seed, struct ft_score_inputs *inputs) {
  uint64_t random = seed;
  for (int i = 0; i < LAB_HEADS; ++i) slopes[i] = coarse(&random);
  for (int i = 0; i < LAB_NK * LAB_HEADS; ++i) pairs[i] = coarse(&random);
  for (int i = 0; i < LAB_HEADS * LAB_NQ * LAB_NK; ++i) biases[i] = bf16_of(coarse(&random));
  for (int i = 0; i < LAB_TABLE_SIZE; ++i) table_entries[i] = some_fp16(&random);
  for (int i = 0; i < LAB_NK; ++i) documents[i] = (uint8_t)(lab_random(&random) % 5);
  for (int i = 0; i < LAB_NQ; ++i) wides[i] = (int64_t)(lab_random(&random) % 9) - 3;
  for (int i = 0; i < LAB_HEADS * LAB_NQ; ++i) flags[i] = (uint8_t)(lab_random(&random) % 3);
  *inputs = (struct ft_score_inputs){
      .scalars = {2.75, -0.4375, 4},
      .tensors = {[LAB_SLOPE] = {slopes, {LAB_HEADS}, {1}},
                  [LAB_BIAS] = {biases, {LAB_HEADS, LAB_NQ, LAB_NK}, {LAB_NQ * LAB_NK, LAB_NK, 1}},
                  [LAB_TABLE] = {table_entries, {LAB_TABLE_SIZE}, {1}},
                  [LAB_PAIR] = {pairs, {LAB_NK, LAB_HEADS}, {1, LAB_NK}},
                  [LAB_DOCUMENT] = {documents, {LAB_NK}, {1}},
                  [LAB_WIDE] = {wides, {LAB_NQ}, {1}},
                  [LAB_FLAG] = {flags, {LAB_HEADS, LAB_NQ}, {0, 1}}}}; /* heads share it */
}

void lab_place(uint64_t *random, struct ft_score_inputs *inputs) {
  double *const symbols = inputs->symbols;
  const uint64_t draw = lab_random(random);
  const uint64_t head = (draw >> 16) % LAB_HEADS, kv_head = head / (LAB_HEADS / LAB_KV_HEADS);
  symbols[FT_SYMBOL_S] = (double)((int)(draw % 129) - 64) / 8;
  symbols[FT_SYMBOL_B] = (double)(draw >> 8 & 1);
  symbols[FT_SYMBOL_H] = (double)head;
  symbols[FT_SYMBOL_KV] = (double)kv_head;
  symbols[FT_SYMBOL_I] = (double)((draw >> 32) % LAB_NQ);
  symbols[FT_SYMBOL_J] = (double)((draw >> 48) % LAB_NK);
  symbols[FT_SYMBOL_NQ] = LAB_NQ;
  symbols[FT_SYMBOL_NK] = LAB_NK;
  symbols[FT_SYMBOL_BATCH] = LAB_BATCH;
  symbols[FT_SYMBOL_HEADS] = LAB_HEADS;
  symbols[FT_SYMBOL_KV_HEADS] = LAB_KV_HEADS;
}
