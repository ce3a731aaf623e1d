/* gpu_suites.h: the suites of fatune_gpu_tests, in the order they run. */
#ifndef TESTS_GPU_GPU_SUITES_H
#define TESTS_GPU_GPU_SUITES_H

#include <check.h>

Suite *make_gpu_properties_suite(void);
Suite *make_gpu_masks_suite(void);
Suite *make_gpu_graph_suite(void);
Suite *make_gpu_plan_suite(void);
Suite *make_gpu_tune_suite(void);
Suite *make_gpu_gradients_suite(void);
Suite *make_gpu_matrix_suite(void);
Suite *make_gpu_backward_suite(void);
Suite *make_gpu_e4m3_suite(void);
Suite *make_gpu_quantise_suite(void);
Suite *make_gpu_fp32_suite(void);
Suite *make_gpu_scores_suite(void);

#endif
