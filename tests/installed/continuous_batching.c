/* continuous_batching.c: an engine that serves random requests: prompts in chunks and single tokens
 * of up to SLOTS requests together in each step, K and V in pages of one pool, every step a replay
 * of one captured graph. in -> out: nothing, or the name of a GPU to emulate, which has no graphs
 * and serves fewer -> exit 0 if each row of O is that of attention to the same rows of K and V side
 * by side.
 *
 * What a step computes lies in device memory: how many tokens each slot has in it (starts), its
 * keys with those (lengths), its pages (table). Totals alone are in the graph.
 */
#include <device_graph.h>
#include <math.h>

enum { HEADS = 4, HEADS_KV = 2, D = 64, Q_ROW = HEADS * D, KV_ROW = HEADS_KV * D };
enum { PAGE = 16, SLOTS = 12, TOKENS = 160, COLUMNS = 48, LENGTH = COLUMNS * PAGE }; /* at most */
enum { PAGES = SLOTS * COLUMNS / 2 }; /* fewer than all slots may want */
enum { TEXT_MOST = 128 };

/* ---- requests ---- */

struct slot {
  int prompt, wanted; /* tokens of the prompt, and with those to come; 0: the slot is free */
  int done;           /* that are in the pool */
  int now;            /* of this step */
};

static struct slot slots[SLOTS];
static int32_t starts[SLOTS + 1], lengths[SLOTS], table[SLOTS][COLUMNS];
static int free_pages[PAGES], free_count, served, admitted, fewest_free = PAGES;

static uint32_t random_state = 2024;

static int below(int limit) {
  random_state = random_state * 1664525 + 1013904223;
  return (int)((random_state >> 8) % (uint32_t)limit);
}

/* A request enters a free slot if the pool has pages for all of it. */
static void admit(struct slot *slot, int most) {
  const int prompt = 1 + below(most), wanted = prompt + 1 + below(most / 4);
  const int pages = (wanted + PAGE - 1) / PAGE;
  if (pages > free_count) return;
  *slot = (struct slot){prompt, wanted, 0, 0};
  for (int n = 0; n < pages; n++) {
    const int other = below(free_count), page = free_pages[other];
    free_pages[other] = free_pages[--free_count];
    table[slot - slots][n] = page;
  }
  if (free_count < fewest_free) fewest_free = free_count;
  admitted++;
}

static void leave(struct slot *slot) {
  for (int n = 0; n < (slot->wanted + PAGE - 1) / PAGE; n++)
    free_pages[free_count++] = table[slot - slots][n];
  *slot = (struct slot){0};
  served++;
}

/* Who has which tokens in this step: one each of those that generate, the rest to prompts. */
static int schedule(int budget) {
  for (int s = 0; s < SLOTS; s++) {
    struct slot *const slot = &slots[s];
    slot->now = slot->wanted && slot->done >= slot->prompt;
    budget -= slot->now;
  }
  for (int s = 0; s < SLOTS; s++) {
    struct slot *const slot = &slots[s];
    const int left = slot->wanted ? slot->prompt - slot->done : 0;
    if (left <= 0) continue;
    slot->now = left < budget ? left : budget;
    budget -= slot->now;
  }
  for (int s = 0; s < SLOTS; s++) {
    starts[s + 1] = starts[s] + slots[s].now;
    lengths[s] = slots[s].done + slots[s].now;
  }
  return starts[SLOTS];
}

/* ---- attention ---- */

static half q[TOKENS * Q_ROW], o[TOKENS * Q_ROW], alone[TOKENS * Q_ROW];
static half rows[2][TOKENS * KV_ROW], pool[PAGES * PAGE * KV_ROW];

struct engine {
  fatune_session *session;
  fatune_plan *paged, *contiguous;
  fatune_arguments run, beside; /* beside: one slot's, with K and V side by side */
  fatune_tensor new_rows[2], kept[2];
  void *stream, *graph; /* NULL: emulated */
};

static fatune_plan *plan_of(fatune_session *session, const char *text) {
  fatune_request request = FATUNE_REQUEST_INIT;
  fatune_plan *plan;
  must(fatune_request_parse(&request, text), text);
  must(fatune_plan_make(&plan, session, &request), text);
  return plan;
}

static fatune_tensor packed(size_t tokens, int row, const void *from) {
  return (fatune_tensor){device_new(tokens * (size_t)row * sizeof(half), from), 0, row, D};
}

static void launch(const struct engine *engine, void *stream) {
  must(fatune_append(engine->paged, &engine->run, &engine->new_rows[0], &engine->new_rows[1],
                     stream),
       "fatune_append");
  must(fatune_plan_run(engine->paged, &engine->run, stream), "fatune_plan_run");
}

static void start(struct engine *engine, const char *emulated) {
  char text[TEXT_MOST];
  fatune_arguments run = FATUNE_ARGUMENTS_INIT;
  size_t bytes;
  engine->session = device_open(emulated, NULL);
  (void)snprintf(text, sizeof text,
                 "forward fp16 d64 hq4 hkv2 b%d nq%d nk%d causal ragged pages=%d", SLOTS, TOKENS,
                 PAGES * PAGE, PAGE);
  engine->paged = plan_of(engine->session, text);
  (void)snprintf(text, sizeof text, "forward fp16 d64 hq4 hkv2 nq%d nk%d causal", TOKENS, LENGTH);
  engine->contiguous = plan_of(engine->session, text);

  for (int n = 0; n < PAGES * PAGE * KV_ROW; n++) pool[n] = (half)NAN; /* what nobody may read */
  run.q = packed(TOKENS, Q_ROW, NULL);
  run.o = packed(TOKENS, Q_ROW, NULL);
  run.k = packed((size_t)PAGES * PAGE, KV_ROW, pool);
  run.v = packed((size_t)PAGES * PAGE, KV_ROW, pool);
  run.k.stride_batch = run.v.stride_batch = PAGE * KV_ROW;
  run.cu_seqlens_q = device_new(sizeof starts, starts);
  run.seqused_k = device_new(sizeof lengths, lengths);
  run.page_table = (fatune_page_table){device_new(sizeof table, table), COLUMNS, 1, COLUMNS, PAGES};
  must(fatune_plan_workspace_size(engine->paged, &bytes), "fatune_plan_workspace_size");
  run.workspace = device_new(bytes, NULL);
  run.workspace_size = bytes;
  engine->run = run;
  engine->beside = (fatune_arguments)FATUNE_ARGUMENTS_INIT;
  engine->beside.o = packed(TOKENS, Q_ROW, NULL);
  for (int n = 0; n < 2; n++) {
    engine->new_rows[n] = packed(TOKENS, KV_ROW, NULL);
    engine->kept[n] = packed((size_t)SLOTS * LENGTH, KV_ROW, NULL);
  }
  launch(engine, NULL); /* of no tokens: in a capture no kernel is compiled or loaded */
  if (emulated) return;
  engine->stream = graph_stream();
  graph_begin(engine->stream);
  launch(engine, engine->stream);
  engine->graph = graph_end(engine->stream);
}

/* New tokens' Q, K and V, K and V also side by side for the comparison; then the graph. */
static void step(struct engine *engine, int tokens, int number) {
  fill(q, (size_t)tokens * Q_ROW, (uint32_t)number * 3);
  fill(o, sizeof o / sizeof *o, 7); /* what a launch that does nothing would leave */
  device_write(engine->run.q.data, q, (size_t)tokens * Q_ROW * sizeof(half));
  device_write(engine->run.o.data, o, sizeof o);
  for (int n = 0; n < 2; n++) {
    fill(rows[n], (size_t)tokens * KV_ROW, (uint32_t)(number * 3 + n + 1));
    device_write(engine->new_rows[n].data, rows[n], (size_t)tokens * KV_ROW * sizeof(half));
    for (int s = 0; s < SLOTS; s++)
      device_write((half *)engine->kept[n].data + (size_t)(s * LENGTH + slots[s].done) * KV_ROW,
                   rows[n] + (size_t)starts[s] * KV_ROW,
                   (size_t)slots[s].now * KV_ROW * sizeof(half));
  }
  device_write((void *)(uintptr_t)engine->run.cu_seqlens_q, starts, sizeof starts);
  device_write((void *)(uintptr_t)engine->run.seqused_k, lengths, sizeof lengths);
  device_write((void *)(uintptr_t)engine->run.page_table.data, table, sizeof table);
  if (engine->graph)
    graph_replay(engine->graph, engine->stream);
  else
    launch(engine, NULL);
}

/* Each slot's rows beside attention to its K and V side by side. */
static double compare(struct engine *engine) {
  double worst = 0;
  device_read(o, engine->run.o.data, sizeof o);
  for (int s = 0; s < SLOTS; s++) {
    const size_t values = (size_t)slots[s].now * Q_ROW;
    if (!values) continue;
    fatune_arguments *const run = &engine->beside;
    run->q = engine->run.q;
    run->q.data = (half *)run->q.data + (size_t)starts[s] * Q_ROW;
    run->k = engine->kept[0];
    run->v = engine->kept[1];
    run->k.data = (half *)run->k.data + (size_t)s * LENGTH * KV_ROW;
    run->v.data = (half *)run->v.data + (size_t)s * LENGTH * KV_ROW;
    run->seqlen_q = slots[s].now;
    run->seqlen_k = lengths[s];
    must(fatune_plan_run(engine->contiguous, run, NULL), "fatune_plan_run of one slot");
    device_read(alone, run->o.data, values * sizeof(half));
    for (size_t n = 0; n < values; n++) {
      const double error = fabs((double)o[(size_t)starts[s] * Q_ROW + n] - (double)alone[n]);
      worst = error <= worst ? worst : error == error ? error : INFINITY;
    }
  }
  return worst;
}

int main(int argc, char **argv) {
  const char *const emulated = argc > 1 ? argv[1] : NULL;
  const int steps = emulated ? 8 : 600, longest = emulated ? 40 : LENGTH * 4 / 5;
  const int budget = emulated ? 48 : TOKENS;
  struct engine engine = {0};
  double worst = 0;
  int64_t tokens = 0;
  while (free_count < PAGES) {
    free_pages[free_count] = free_count;
    free_count++;
  }
  start(&engine, emulated);
  for (int number = 1; number <= steps; number++) {
    for (int s = 0; s < SLOTS; s++)
      if (!slots[s].wanted && below(3) == 0) admit(&slots[s], longest);
    const int now = schedule(budget);
    tokens += now;
    step(&engine, now, number);
    worst = fmax(worst, compare(&engine));
    for (int s = 0; s < SLOTS; s++) {
      slots[s].done += slots[s].now;
      if (slots[s].wanted && slots[s].done == slots[s].wanted) leave(&slots[s]);
    }
  }
  printf("%d steps, %lld tokens, %d requests of %d served, %d of %d pages used at most; %s\n",
         steps, (long long)tokens, served, admitted, PAGES - fewest_free, PAGES,
         fatune_plan_config(engine.paged));
  fatune_plan_free(engine.paged);
  fatune_plan_free(engine.contiguous);
  fatune_session_close(engine.session);
  return finish("continuous_batching", served > 0 ? worst : 1, 2e-3);
}
