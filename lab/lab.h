/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of varve-lab; lab.c lists them. */
#ifndef LAB_LAB_H
#define LAB_LAB_H

#include "cli/common/command.h"

int lab_model(int argc, char **argv);
int lab_bench_shot(int argc, char **argv);
int lab_bench_script(int argc, char **argv);
int lab_bench_stream(int argc, char **argv);
int lab_bench_paper(int argc, char **argv);
int lab_bench_outofcore(int argc, char **argv);
int lab_bench_ooc(int argc, char **argv);
int lab_bench_gpufile(int argc, char **argv);
int lab_sim_shot(int argc, char **argv);
int lab_sim_script(int argc, char **argv);
int lab_sim_stream(int argc, char **argv);
int lab_sim_make(int argc, char **argv);
int lab_sim_set(int argc, char **argv);
int lab_sim_scale(int argc, char **argv);
int lab_sim_training(int argc, char **argv);
int lab_ring_sim(int argc, char **argv);
int lab_ring_where(int argc, char **argv);

#endif
