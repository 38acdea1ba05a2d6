/* SPDX-License-Identifier: Apache-2.0 */
/*
 * varve-rtm: reverse time migration with its history of wavefields in Varve.
 *
 * Exit status: 0, 1 after an error, 2 for a wrong command line, 128 and its number after a signal.
 */
#include "rtm.h"

int main(int argc, char **argv)
{
    return rtm_main(argc, argv, NULL);
}
