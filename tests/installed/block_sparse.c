/* block_sparse.c: a forward that sees some blocks of keys, compared with the same in plain C.
 * in -> out: nothing, or the name of a GPU to emulate -> exit 0 if O is right. */
#include <device_memory.h>
#include <math.h>

enum { N = 160, D = 64, BLOCK = 32, BLOCKS = N / BLOCK };
static half q[N][D], k[N][D], v[N][D], o[N][D];
/* What a query sees: its own block, the one before, and the first. */
static const uint8_t kept[BLOCKS][BLOCKS] = {
    {1, 0, 0, 0, 0}, {1, 1, 0, 0, 0}, {1, 1, 1, 0, 0}, {1, 0, 1, 1, 0}, {1, 0, 0, 1, 1}};

static double exact(int i, int d) {
  double weights = 0, sum = 0;
  for (int j = 0; j < N; j++) {
    double s = 0;
    if (!kept[i / BLOCK][j / BLOCK]) continue;
    for (int e = 0; e < D; e++) s += (double)q[i][e] * (double)k[j][e];
    const double weight = exp(s / sqrt(D));
    weights += weight;
    sum += weight * (double)v[j][d];
  }
  return sum / weights;
}

int main(int argc, char **argv) {
  fatune_session *const session = device_open(argc > 1 ? argv[1] : NULL, NULL);
  fatune_request request = FATUNE_REQUEST_INIT;
  fatune_mask_options options = FATUNE_MASK_OPTIONS_INIT;
  fatune_arguments run = FATUNE_ARGUMENTS_INIT;
  fatune_mask *mask;
  fatune_plan *plan;
  fill(&q[0][0], sizeof q / sizeof(half), 1);
  fill(&k[0][0], sizeof k / sizeof(half), 2);
  fill(&v[0][0], sizeof v / sizeof(half), 3);

  options.blocks = &kept[0][0]; /* of the host; it is copied */
  options.mask_rows = options.mask_cols = BLOCK;
  options.batch = options.heads = 1; /* for all */
  options.seqlen_q = options.seqlen_k = N;
  must(fatune_mask_make(&mask, session, &options, NULL), "fatune_mask_make");
  must(fatune_request_parse(&request, "forward fp16 d64 nq160 mask=32x32@0.44"),
       "fatune_request_parse");
  must(fatune_plan_make(&plan, session, &request), "fatune_plan_make");
  run.q = (fatune_tensor){device_new(sizeof q, q), N * D, D, D};
  run.k = (fatune_tensor){device_new(sizeof k, k), N * D, D, D};
  run.v = (fatune_tensor){device_new(sizeof v, v), N * D, D, D};
  run.o = (fatune_tensor){device_new(sizeof o, NULL), N * D, D, D};
  run.mask = mask;
  must(fatune_plan_run(plan, &run, NULL), "fatune_plan_run");
  device_read(o, run.o.data, sizeof o);

  double worst = 0;
  for (int i = 0; i < N; i++)
    for (int d = 0; d < D; d++) worst = fmax(worst, fabs((double)o[i][d] - exact(i, d)));
  fatune_mask_free(mask);
  fatune_plan_free(plan);
  fatune_session_close(session);
  return finish("block_sparse", worst, 2e-3);
}
