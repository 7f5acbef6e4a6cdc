/*
 * The verbs of the command line. Each takes its own arguments (argv[0] is the verb), returns the
 * exit status, and has one row in main.c's table.
 */
#ifndef OFFSIM_SIM_CLI_VERBS_H
#define OFFSIM_SIM_CLI_VERBS_H

int verb_predict(int argc, char **argv);
int verb_plan(int argc, char **argv);
int verb_check(int argc, char **argv);
int verb_run(int argc, char **argv);
int verb_sweep(int argc, char **argv);
int verb_tune(int argc, char **argv);
int verb_compare(int argc, char **argv);
int verb_import(int argc, char **argv);
int verb_record(int argc, char **argv);
int verb_calibrate(int argc, char **argv);

#endif
