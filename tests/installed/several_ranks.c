/* several_ranks.c: one causal forward over all processes of MPI, each of which has some rows of a
 * sequence. in -> out: nothing, or the name of a GPU to emulate -> exit 0 if O of every rank is
 * that of attention to all keys.
 *
 *     mpicc several_ranks.c $(pkg-config --cflags --libs fatune) -ldl -lm -o several_ranks
 *     mpirun -n 4 several_ranks
 *
 * In step t rank r works on the keys of rank r - t, while the keys of the next step are received.
 * Keys of higher ranks are hidden by causal, so they are neither sent nor computed. K and V are
 * copied to the host and sent from there, which works with any MPI. The n-th process of a host uses
 * the n-th GPU of that host.
 */
#include <device_memory.h>
#include <math.h>
#include <mpi.h>

enum { ROWS = 96, HEADS = 2, D = 32, ROW = HEADS * D, SHARE = ROWS * ROW };

struct keys {
  half k[SHARE], v[SHARE];
};

static fatune_session *session;
static int rank, ranks;

static half *shares(uint32_t seed) {
  half *const all = malloc((size_t)ranks * SHARE * sizeof *all);
  if (!all) exit(1);
  fill(all, (size_t)ranks * SHARE, seed);
  return all;
}

/* [batch, rows, heads, dim]. */
static fatune_tensor tensor_of(void *data) {
  return (fatune_tensor){data, SHARE, ROW, D};
}

/* Begins to send this rank's keys to rank + t, and to receive those of rank - t. */
static void post(int t, const struct keys *own, struct keys *coming, MPI_Request requests[2]) {
  requests[0] = requests[1] = MPI_REQUEST_NULL;
  if (rank + t < ranks)
    MPI_Isend(own, sizeof *own, MPI_BYTE, rank + t, t, MPI_COMM_WORLD, &requests[0]);
  if (rank - t >= 0)
    MPI_Irecv(coming, sizeof *coming, MPI_BYTE, rank - t, t, MPI_COMM_WORLD, &requests[1]);
}

/* One part: O and LSE of our queries on the keys of one rank. */
static fatune_part run_part(fatune_plan *plan, void *q, const struct keys *keys, int source) {
  fatune_arguments run = FATUNE_ARGUMENTS_INIT;
  run.q = tensor_of(q);
  run.k = tensor_of(device_new(sizeof keys->k, keys->k));
  run.v = tensor_of(device_new(sizeof keys->v, keys->v));
  run.o = tensor_of(device_new(SHARE * sizeof(half), NULL));
  run.lse = device_new(ROWS * HEADS * sizeof(float), NULL);
  run.origin.query = (int64_t)rank * ROWS;
  run.origin.key = (int64_t)source * ROWS;
  must(fatune_plan_run(plan, &run, NULL), "fatune_plan_run");
  return (fatune_part){run.o, run.lse};
}

static void attend(half *o, half *q, const struct keys *own) {
  static struct keys coming[2];
  fatune_request request = FATUNE_REQUEST_INIT;
  fatune_merge_arguments all = FATUNE_MERGE_ARGUMENTS_INIT;
  fatune_part *const parts = calloc((size_t)rank + 1, sizeof *parts);
  fatune_plan *plan;
  if (!parts) exit(1);
  must(fatune_request_parse(&request, "forward fp16 d32 hq2 hkv2 nq96 causal=top-left"),
       "fatune_request_parse");
  must(fatune_plan_make(&plan, session, &request), "fatune_plan_make");
  void *const on_device = device_new(SHARE * sizeof(half), q);
  const struct keys *keys = own;
  for (int t = 0; t < ranks; t++) {
    MPI_Request requests[2];
    MPI_Status statuses[2];
    struct keys *const next = &coming[t % 2];
    post(t + 1, own, next, requests);
    if (rank - t >= 0) parts[t] = run_part(plan, on_device, keys, rank - t);
    MPI_Waitall(2, requests, statuses);
    keys = next;
  }
  all.dtype = FATUNE_FP16;
  all.head_dim_v = D;
  all.heads_q = HEADS;
  all.seqlen_q = ROWS;
  all.o = tensor_of(device_new(SHARE * sizeof(half), NULL));
  all.parts = parts;
  all.part_count = rank + 1;
  must(fatune_merge(session, &all, NULL), "fatune_merge");
  device_read(o, all.o.data, SHARE * sizeof(half));
  free(parts);
  fatune_plan_free(plan);
}

/* Of query i of the whole sequence. */
static double exact(const half *q, const half *k, const half *v, int i, int head, int d) {
  double weights = 0, sum = 0;
  for (int j = 0; j <= i; j++) {
    double s = 0;
    for (int e = 0; e < D; e++)
      s += (double)q[i * ROW + head * D + e] * (double)k[j * ROW + head * D + e];
    const double weight = exp(s / sqrt(D));
    weights += weight;
    sum += weight * (double)v[j * ROW + head * D + d];
  }
  return sum / weights;
}

/* The n-th process of this host sees the n-th GPU alone, unless the caller has chosen. */
static void take_gpu(void) {
  MPI_Comm host;
  char number[16];
  int place;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host);
  MPI_Comm_rank(host, &place);
  MPI_Comm_free(&host);
  snprintf(number, sizeof number, "%d", place);
  setenv("CUDA_VISIBLE_DEVICES", number, 0);
}

int main(int argc, char **argv) {
  static half o[SHARE];
  static struct keys own;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks > FATUNE_MERGE_PARTS) {
    fprintf(stderr, "%d processes; allowed: at most %d\n", ranks, FATUNE_MERGE_PARTS);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  take_gpu();
  session = device_open(argc > 1 ? argv[1] : NULL, NULL);
  half *const q = shares(1), *const k = shares(2), *const v = shares(3);
  memcpy(own.k, k + (size_t)rank * SHARE, sizeof own.k);
  memcpy(own.v, v + (size_t)rank * SHARE, sizeof own.v);
  attend(o, q + (size_t)rank * SHARE, &own);
  double worst = 0, of_all;
  for (int i = 0; i < ROWS; i += 5)
    for (int c = 0; c < ROW; c++)
      worst =
          fmax(worst, fabs((double)o[i * ROW + c] - exact(q, k, v, rank * ROWS + i, c / D, c % D)));
  MPI_Allreduce(&worst, &of_all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  fatune_session_close(session);
  MPI_Finalize();
  return rank == 0 ? finish("several_ranks", of_all, 4e-3) : of_all > 4e-3;
}
