// A library that answers as libnvidia-ml.so.1 does, for tests: the calls that the helper makes, with the layouts of NVML's
// public header. What it answers stands in the file that SPILLWAY_STUB names, a GPU a line:
//
//   gpu UUID RETURN STATE STATUS CLUSTER CLIQUE MASK     CLUSTER are 32 digits, RETURN is what the fabric call returns
//   crash | hang | nodriver                              the library crashes, hangs, or finds no driver
//
// NEWEST is the newest version of the fabric structure that it knows: 4, 3, 2, 1, or 0 for none.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, INVALID_ARGUMENT = 2, DRIVER_NOT_LOADED = 9, VERSION_MISMATCH = 25 };

typedef struct {
    char uuid[96];
    int ret;
    unsigned int state, status, clique, mask;
    unsigned char cluster[16];
} gpu;

static gpu gpus[16];
static int count;

static int readScene(void) {
    char line[512], cluster[64];
    const char *path = getenv("SPILLWAY_STUB");
    FILE *f = path ? fopen(path, "r") : NULL;
    if (!f) exit(3);
    count = 0;
    while (fgets(line, sizeof line, f)) {
        gpu *g = &gpus[count];
        if (!strncmp(line, "crash", 5)) abort();
        while (!strncmp(line, "hang", 4)) usleep(10000);
        if (!strncmp(line, "nodriver", 8)) return DRIVER_NOT_LOADED;
        if (sscanf(line, "gpu %95s %d %u %u %63s %u %u", g->uuid, &g->ret, &g->state, &g->status, cluster, &g->clique, &g->mask) != 7) continue;
        for (int i = 0; i < 16; i++) {
            unsigned int byte;
            sscanf(cluster + 2 * i, "%2x", &byte);
            g->cluster[i] = byte;
        }
        count++;
    }
    fclose(f);
    return OK;
}

const char *nvmlErrorString(int code) {
    switch (code) {
    case OK: return "Success";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case 23: return "Insufficient Resources";
    }
    return "Unknown Error";
}

int nvmlInit_v2(void) { return readScene(); }
int nvmlInit_v1(void) { return readScene(); }
int nvmlShutdown(void) { return OK; }
int nvmlDeviceGetCount_v2(unsigned int *n) { return *n = count, OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, gpu **device) { return *device = &gpus[index], OK; }
int nvmlDeviceGetUUID(gpu *g, char *uuid, unsigned int length) {
    snprintf(uuid, length, "%s", g->uuid);
    return OK;
}

#if NEWEST >= 1
typedef struct {
    unsigned char cluster[16];
    unsigned int status, clique;
    unsigned char state;
} fabric1;

int nvmlDeviceGetGpuFabricInfo(gpu *g, fabric1 *f) {
    memcpy(f->cluster, g->cluster, 16);
    f->status = g->status, f->clique = g->clique, f->state = g->state;
    return g->ret;
}
#endif

#if NEWEST >= 2
typedef struct {
    unsigned int version;
    unsigned char cluster[16];
    unsigned int status, clique;
    unsigned char state;
    unsigned int mask;
    unsigned char summary; // from version 3 on
} fabric3;

int nvmlDeviceGetGpuFabricInfoV(gpu *g, fabric3 *f) {
    unsigned int version = f->version >> 24, size = f->version & 0xffffff;
    if (version < 2 || version > (NEWEST < 3 ? NEWEST : 3)) return VERSION_MISMATCH;
    if (size != (version == 2 ? 36 : sizeof(fabric3))) return INVALID_ARGUMENT;
    memcpy(f->cluster, g->cluster, 16);
    f->status = g->status, f->clique = g->clique, f->state = g->state, f->mask = g->mask;
    if (version == 3) f->summary = 1;
    return g->ret;
}
#endif

#if NEWEST >= 4
typedef struct {
    unsigned char type;
    unsigned int id;
} clique;

typedef struct {
    unsigned char cluster[16];
    unsigned int status;
    clique cliques[64];
    unsigned int cliqueCount;
    unsigned char state;
    unsigned int mask;
    unsigned char summary;
} fabric4;

int nvmlDeviceGetGpuFabricInfo_v4(gpu *g, fabric4 *f) {
    memcpy(f->cluster, g->cluster, 16);
    f->status = g->status, f->state = g->state, f->mask = g->mask;
    f->cliqueCount = 3;
    f->cliques[0] = (clique){0, g->clique}, f->cliques[1] = (clique){0, g->clique + 1}, f->cliques[2] = (clique){1, g->clique + 2};
    return g->ret;
}
#endif
