// SPDX-License-Identifier: Apache-2.0
//
// An adjoint computation whose history does not fit memory. It writes every step going forward in time, and reads the
// records back, last step first. A varve::vector replaces the array.
//
//     c++ -std=c++11 outofcore.cpp $(pkg-config --cflags --libs varve) -o outofcore && ./outofcore FOLDER
#include <cmath>
#include <cstdio>
#include <varve/vector.hpp>

const std::size_t cells = 1 << 16;
const int steps = 200;

static void step(varve::vector<double> &u)
{
    for (std::size_t i = 1; i + 1 < u.size(); i++)
        u[i] += 0.25 * (u[i - 1] - 2 * u[i] + u[i + 1]);
}

int main(int argc, char **argv)
try {
    varve::options options;
    options.set("host_cache", "16M").set("local", argc > 1 ? argv[1] : "."); // 100 MiB are written
    varve::context context(options);
    varve::store history(context, "field", varve::order::lifo, varve::consume::once);
    varve::vector<double> u(history, cells), gradient(history, cells);
    double forward = 0, backward = 0;

    u[cells / 2] = 1000;
    for (int t = 0; t < steps; t++) {
        step(u);
        forward += u[cells / 2 + 1];
        u.write(t); // returns when u may be changed
    }
    for (int t = steps; t-- > 0;) {
        u.read(t); // the record is in memory already, and exchanges its memory with u if possible
        backward += u[cells / 2 + 1];
        for (std::size_t i = 0; i < cells; i++)
            gradient[i] += u[i] * u[i];
    }
    std::printf("forward %.9g, backward %.9g\n", forward, backward);
    return std::fabs(forward - backward) < 1e-9 * forward ? 0 : 1;
} catch (const std::exception &e) {
    std::fprintf(stderr, "outofcore: %s\n", e.what());
    return 1;
}
