/* SPDX-License-Identifier: Apache-2.0 */
/* varve-kirchhoff: Kirchhoff migration. Exit status: 0, 1 after an error, 2 for a wrong command line. */
#include "kirchhoff.h"

int main(int argc, char **argv)
{
    return kir_main(argc, argv);
}
