/* A LayerNorm and a softmax in float, forward and backward, tested with npgpt's conformance
   vectors; put your own functions in their place.

       npgpt vectors --out vectors
       cc -o check examples/vectors.c -lm
       ./check vectors/ops/layer_norm.*.safetensors vectors/ops/softmax.*.safetensors

   A file is read without a library: 8 bytes say how long the header is, the header where each array
   lies behind it, all little-endian. */

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { const char *path; char *header, *data; } File;
typedef struct { int axes; long shape[8], count; char *data; } Tensor;

static void *must(void *pointer, const char *what, const char *path) {
    if (pointer) return pointer;
    fprintf(stderr, "%s: no %s\n", path, what);
    exit(2);
}

static float *room(long count) { return must(calloc(count + 1, sizeof(float)), "memory", ""); }

static File open_file(const char *path) {
    FILE *stream = must(fopen(path, "rb"), "such file", path);
    uint64_t length = 0;
    size_t size = 1 << 20;
    File file = {path, must(malloc(size), "memory", path), must(malloc(size), "memory", path)};
    if (!fread(&length, 8, 1, stream) || length >= size) must(NULL, "header", path);
    file.header[fread(file.header, 1, length, stream)] = 0;
    if (!fread(file.data, 1, size, stream)) must(NULL, "data", path);
    fclose(stream);
    return file;
}

/* The header has "x":{"dtype":"F64","shape":[2,3],"data_offsets":[0,48]} for each array. */
static Tensor tensor(File file, const char *name) {
    char key[80];
    snprintf(key, sizeof key, "\"%s\":{", name);
    char *at = strstr(must(strstr(file.header, key), name, file.path), "\"shape\":[");
    Tensor found = {0, {0}, 1, NULL};
    for (at += strlen("\"shape\":["); *at != ']' && found.axes < 8; at += *at == ',') {
        found.shape[found.axes] = strtol(at, &at, 10);
        found.count *= found.shape[found.axes++];
    }
    at = strstr(at, "\"data_offsets\":[") + strlen("\"data_offsets\":[");
    found.data = file.data + strtol(at, NULL, 10);
    return found;
}

static double number(File file, const char *name) { return *(double *)tensor(file, name).data; }

static float *floats(File file, const char *name) {
    Tensor exact = tensor(file, name);
    float *rounded = room(exact.count);
    for (long i = 0; i < exact.count; i++) rounded[i] = (float)((double *)exact.data)[i];
    return rounded;
}

static int differs(File file, const char *name, const float *got) {
    char key[80];
    snprintf(key, sizeof key, "tolerance.%s", name);
    Tensor want = tensor(file, name);
    double allowed = number(file, key), worst = 0;
    int wrong = 0; /* NaN is wrong, too */
    for (long i = 0; i < want.count; i++) {
        double apart = fabs(got[i] - ((double *)want.data)[i]);
        if (!(apart <= allowed)) wrong = 1;
        if (apart > worst) worst = apart;
    }
    printf("%s %-8s %.1e of %.1e %s\n", wrong ? "WRONG" : "ok   ", name, worst, allowed, file.path);
    return wrong;
}

static void layer_norm_forward(long d, float eps, const float *x, const float *weight,
                               const float *bias, float *y, float *x_hat, float *rstd) {
    float mean = 0, variance = 0;
    for (long i = 0; i < d; i++) mean += x[i] / d;
    for (long i = 0; i < d; i++) variance += (x[i] - mean) * (x[i] - mean) / d;
    *rstd = 1 / sqrtf(variance + eps);
    for (long i = 0; i < d; i++) x_hat[i] = (x[i] - mean) * *rstd;
    for (long i = 0; i < d; i++) y[i] = x_hat[i] * weight[i] + bias[i];
}

static void layer_norm_backward(long d, const float *dy, const float *weight, const float *x_hat,
                                float rstd, float *dx, float *dweight, float *dbias) {
    float mean = 0, along = 0; /* of g = dy weight, and of g x_hat */
    for (long i = 0; i < d; i++) mean += dy[i] * weight[i] / d;
    for (long i = 0; i < d; i++) along += dy[i] * weight[i] * x_hat[i] / d;
    for (long i = 0; i < d; i++) dx[i] = rstd * (dy[i] * weight[i] - mean - x_hat[i] * along);
    for (long i = 0; i < d; i++) dweight[i] += dy[i] * x_hat[i], dbias[i] += dy[i];
}

/* Over n numbers that lie `step` apart; a row of nothing but -inf gives zeros. */
static void softmax_forward(long n, long step, const float *x, float *probs) {
    float highest = -INFINITY, total = 0;
    for (long i = 0; i < n; i++) highest = fmaxf(highest, x[i * step]);
    if (highest == -INFINITY) return;
    for (long i = 0; i < n; i++) total += probs[i * step] = expf(x[i * step] - highest);
    for (long i = 0; i < n; i++) probs[i * step] /= total;
}

static void softmax_backward(long n, long step, const float *dy, const float *probs, float *dx) {
    float mean = 0;
    for (long i = 0; i < n; i++) mean += dy[i * step] * probs[i * step];
    for (long i = 0; i < n; i++) dx[i * step] = probs[i * step] * (dy[i * step] - mean);
}

static int test_layer_norm(File file) {
    Tensor shape = tensor(file, "x");
    long count = shape.count, d = shape.shape[shape.axes - 1];
    float *x = floats(file, "x"), *weight = floats(file, "weight"), *bias = floats(file, "bias");
    float *dy = floats(file, "dy"), *y = room(count), *x_hat = room(d), rstd;
    float *dx = room(count), *dweight = room(d), *dbias = room(d);
    for (long i = 0; i < count; i += d) {
        layer_norm_forward(d, number(file, "eps"), x + i, weight, bias, y + i, x_hat, &rstd);
        layer_norm_backward(d, dy + i, weight, x_hat, rstd, dx + i, dweight, dbias);
    }
    return differs(file, "y", y) + differs(file, "dx", dx) +
           differs(file, "dweight", dweight) + differs(file, "dbias", dbias);
}

static int test_softmax(File file) {
    Tensor shape = tensor(file, "x");
    long axis = *(int64_t *)tensor(file, "axis").data, step = 1;
    if (axis < 0) axis += shape.axes;
    for (int i = axis + 1; i < shape.axes; i++) step *= shape.shape[i];
    float *x = floats(file, "x"), *dprobs = floats(file, "dprobs");
    float *probs = room(shape.count), *dx = room(shape.count);
    for (long i = 0, n = shape.shape[axis]; i < shape.count; i++) {
        if (i / step % n > 0) continue; /* not the first of its row */
        softmax_forward(n, step, x + i, probs + i);
        softmax_backward(n, step, dprobs + i, probs + i, dx + i);
    }
    return differs(file, "probs", probs) + differs(file, "dx", dx);
}

int main(int count, char **paths) {
    int wrong = 0;
    for (int i = 1; i < count; i++) {
        int (*test)(File) = strstr(paths[i], "/softmax.") ? test_softmax : test_layer_norm;
        wrong += test(open_file(paths[i]));
    }
    printf("%d wrong\n", wrong);
    return wrong > 0;
}
