/* graph_from_bundle.c: a kernel from a shipped file, launched by a captured graph that is replayed
 * with other tensors' values. in -> out: the folder of the file, which `fatune cache export` made
 * of the request below; then nothing, or the name of a GPU to emulate, which has no graphs -> exit
 * 0 if both replays give what direct runs give.
 *
 *     fatune tune --gpu auto "forward fp16 d64 hq4 nq512 causal"
 *     fatune cache export --gpu auto -o FOLDER/mine.fatune
 */
#include <device_graph.h>
#include <math.h>

enum { N = 512, HEADS = 4, D = 64, COUNT = N * HEADS * D };
static half values[COUNT], replayed[COUNT], direct[COUNT];

static fatune_tensor tensor(uint32_t seed) {
  fill(values, COUNT, seed);
  return (fatune_tensor){device_new(sizeof values, values), COUNT, HEADS * D, D};
}

static void new_values(const fatune_tensor *of, uint32_t seed) {
  fill(values, COUNT, seed);
  device_write(of->data, values, sizeof values);
}

int main(int argc, char **argv) {
  if (argc < 2) return 2;
  fatune_session *const session = device_open(argc > 2 ? argv[2] : NULL, argv[1]);
  fatune_request request = FATUNE_REQUEST_INIT;
  fatune_arguments run = FATUNE_ARGUMENTS_INIT;
  fatune_plan *plan;
  void *stream = NULL, *graph = NULL;
  must(fatune_request_parse(&request, "forward fp16 d64 hq4 nq512 causal"), "fatune_request_parse");
  must(fatune_plan_make(&plan, session, &request), "fatune_plan_make");
  printf("%s\n", fatune_plan_origin(plan));
  run.q = tensor(1);
  run.k = tensor(2);
  run.v = tensor(3);
  run.o = tensor(4);
  if (!device_emulated) {
    stream = graph_stream();
    graph_begin(stream);
    must(fatune_plan_run(plan, &run, stream), "fatune_plan_run in a capture");
    graph = graph_end(stream);
  }

  double worst = 0, largest = 0;
  for (uint32_t round = 0; round < 2; round++) {
    new_values(&run.q, 10 + round);
    new_values(&run.o, 20); /* what a launch that does nothing would leave */
    if (graph)
      graph_replay(graph, stream);
    else
      must(fatune_plan_run(plan, &run, NULL), "fatune_plan_run");
    device_read(replayed, run.o.data, sizeof replayed);
    must(fatune_plan_run(plan, &run, NULL), "fatune_plan_run");
    device_read(direct, run.o.data, sizeof direct);
    for (int n = 0; n < COUNT; n++) {
      worst = fmax(worst, fabs((double)replayed[n] - (double)direct[n]));
      largest = fmax(largest, fabs((double)direct[n] - (double)values[n]));
    }
  }
  fatune_plan_free(plan);
  fatune_session_close(session);
  return finish("graph_from_bundle", largest > 0.1 ? worst : 1, 0);
}
