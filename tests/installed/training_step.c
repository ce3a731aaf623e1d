/* training_step.c: forward and backward with dropout, and a step along the gradients.
 * in -> out: nothing, or the name of a GPU to emulate -> exit 0 if the loss, the sum of O times dO,
 * changes as the gradients say.
 *
 * The loss is linear in V: for a step dV it changes by |dV|^2, but for rounding. */
#include <device_memory.h>
#include <math.h>

enum { B = 2, N = 64, HEADS = 4, HEADS_KV = 2, D = 32 };
enum { COUNT = B * N * HEADS * D, COUNT_KV = B * N * HEADS_KV * D };
static half q[COUNT], k[COUNT_KV], v[COUNT_KV], o[COUNT], dout[COUNT], dv[COUNT_KV];

static fatune_tensor on_device(const half *from, int heads) { /* [batch, sequence, heads, dim] */
  return (fatune_tensor){device_new((size_t)B * N * heads * D * sizeof(half), from),
                         (int64_t)N * heads * D, (int64_t)heads * D, D};
}

static fatune_plan *plan_of(fatune_session *session, const char *text) {
  fatune_request request = FATUNE_REQUEST_INIT;
  fatune_plan *plan;
  must(fatune_request_parse(&request, text), text);
  must(fatune_plan_make(&plan, session, &request), text);
  return plan;
}

static double loss_of(fatune_plan *plan, const fatune_arguments *run) {
  double loss = 0;
  must(fatune_plan_run(plan, run, NULL), "the forward");
  device_read(o, run->o.data, sizeof o);
  for (int n = 0; n < COUNT; n++) loss += (double)o[n] * (double)dout[n];
  return loss;
}

int main(int argc, char **argv) {
  fatune_session *const session = device_open(argc > 1 ? argv[1] : NULL, NULL);
  fatune_plan *const forward = plan_of(session, "forward fp16 d32 hq4 hkv2 b2 nq64 causal dropout");
  fatune_plan *const backward =
      plan_of(session, "backward fp16 d32 hq4 hkv2 b2 nq64 causal dropout");
  fatune_arguments run = FATUNE_ARGUMENTS_INIT;
  size_t workspace;
  fill(q, COUNT, 1);
  fill(k, COUNT_KV, 2);
  fill(v, COUNT_KV, 3);
  fill(dout, COUNT, 4);
  run.q = on_device(q, HEADS);
  run.k = on_device(k, HEADS_KV);
  run.v = on_device(v, HEADS_KV);
  run.o = on_device(NULL, HEADS);
  run.lse = device_new(sizeof(float) * B * HEADS * N, NULL); /* the backward reads it */
  run.dropout = 0.25F;
  run.seed = 7; /* the backward of the same seed and offset drops the same weights */
  const double before = loss_of(forward, &run);

  run.dout = on_device(dout, HEADS);
  run.dq = on_device(NULL, HEADS);
  run.dk = on_device(NULL, HEADS_KV);
  run.dv = on_device(NULL, HEADS_KV);
  must(fatune_plan_workspace_for(backward, &run, &workspace), "fatune_plan_workspace_for");
  run.workspace = device_new(workspace, NULL);
  run.workspace_size = workspace;
  must(fatune_plan_run(backward, &run, NULL), "the backward");
  device_read(dv, run.dv.data, sizeof dv);

  double length = 0;
  const double step = 0.125;
  for (int n = 0; n < COUNT_KV; n++) {
    length += (double)dv[n] * (double)dv[n];
    v[n] = (half)((double)v[n] - step * (double)dv[n]);
  }
  run.v = on_device(v, HEADS_KV);
  const double after = loss_of(forward, &run);
  printf("loss %.4f, then %.4f\n", before, after);
  fatune_plan_free(forward);
  fatune_plan_free(backward);
  fatune_session_close(session);
  return finish("training_step", fabs((before - after) / (step * length) - 1), 1e-2);
}
