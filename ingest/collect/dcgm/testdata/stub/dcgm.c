// A library that answers as libdcgm.so does, for tests: the calls that the helper makes, with the layouts of DCGM's public
// headers. What it answers stands in the file that SPILLWAY_STUB names, and is read anew for every question:
//
//   gpu ID                                  a GPU that there is
//   links GPU COUNT                         how many links of it are taken for links
//   refuse FIELD                            a field that may not be watched
//   int GPU LINK FIELD STATUS VALUE         a value; LINK is -1 for the GPU as a whole
//   real GPU LINK FIELD STATUS VALUE
//   text GPU LINK FIELD STATUS VALUE
//   old MILLIS                              values from here on are as old
//   down | lost | crash | hang              nv-hostengine does not answer; it is gone; the library crashes; it hangs
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define OK 0
#define BADPARAM (-1)
#define UNKNOWN_FIELD (-13)
#define NOT_WATCHED (-16)
#define NO_DATA (-14)
#define CONNECTION_NOT_VALID (-21)

enum { ENTITY_GPU = 1, ENTITY_LINK = 6 };

typedef struct {
    unsigned int version, entityGroupId, entityId;
    unsigned short fieldId, fieldType;
    int status;
    unsigned int unused;
    int64_t ts;
    union {
        int64_t i64;
        double dbl;
        char str[256];
        char blob[4096];
    } value;
} fieldValue;

typedef struct {
    unsigned int entityGroupId, entityId;
} entityPair;

static unsigned short groups[64][128];
static int groupSizes[64], groupCount;
static char watched[4096];

static FILE *scene(void) {
    const char *path = getenv("SPILLWAY_STUB");
    FILE *f = path ? fopen(path, "r") : NULL;
    if (!f) {
        fprintf(stderr, "stub: SPILLWAY_STUB names no file\n");
        exit(3);
    }
    return f;
}

// says tells whether a line of the scene is the word, and acts on those that end the process.
static int says(const char *word) {
    char line[512];
    int found = 0;
    FILE *f = scene();
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        if (!strcmp(line, word)) found = 1;
    }
    fclose(f);
    return found;
}

const char *errorString(int result) {
    switch (result) {
    case OK: return "Success";
    case BADPARAM: return "Bad parameter passed to function";
    case UNKNOWN_FIELD: return "Unknown field";
    case CONNECTION_NOT_VALID: return "The connection to the host engine is not valid any longer";
    }
    return "Generic error";
}

int dcgmInit(void) { return OK; }
int dcgmShutdown(void) { return OK; }
int dcgmDisconnect(uintptr_t handle) { return OK; }

int dcgmConnect_v2(const char *address, void *params, uintptr_t *handle) {
    if (says("down")) return CONNECTION_NOT_VALID;
    *handle = 1;
    return OK;
}

int dcgmGetAllSupportedDevices(uintptr_t handle, unsigned int ids[32], int *count) {
    char line[512];
    FILE *f = scene();
    *count = 0;
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "gpu %u", &ids[*count]) == 1) ++*count;
    fclose(f);
    return OK;
}

int dcgmGroupCreate(uintptr_t handle, int type, const char *name, uintptr_t *group) {
    static uintptr_t next = 10;
    *group = next++;
    return OK;
}
int dcgmGroupDestroy(uintptr_t handle, uintptr_t group) { return OK; }
int dcgmGroupAddDevice(uintptr_t handle, uintptr_t group, unsigned int gpu) { return OK; }

int dcgmGroupAddEntity(uintptr_t handle, uintptr_t group, unsigned int kind, unsigned int entity) {
    char line[512];
    unsigned int gpu, count;
    int ok = 0;
    FILE *f = scene();
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "links %u %u", &gpu, &count) == 2 && kind == ENTITY_LINK && (entity & 0xff) == ENTITY_GPU &&
            entity >> 24 == gpu && (entity >> 8 & 0xffff) < count)
            ok = 1;
    fclose(f);
    return ok ? OK : BADPARAM;
}

int dcgmFieldGroupCreate(uintptr_t handle, int count, unsigned short *fields, const char *name, uintptr_t *group) {
    char line[512];
    unsigned int refused;
    if (groupCount == 64 || count > 128) return BADPARAM;
    FILE *f = scene();
    while (fgets(line, sizeof line, f))
        for (int i = 0; i < count; i++)
            if (sscanf(line, "refuse %u", &refused) == 1 && fields[i] == refused) {
                fclose(f);
                return UNKNOWN_FIELD;
            }
    fclose(f);
    memcpy(groups[groupCount], fields, count * sizeof *fields);
    groupSizes[groupCount] = count;
    *group = groupCount++;
    return OK;
}
int dcgmFieldGroupDestroy(uintptr_t handle, uintptr_t group) { return OK; }

int dcgmWatchFields(uintptr_t handle, uintptr_t group, uintptr_t fields, long long every, double keep, int samples) {
    if (every <= 0) return BADPARAM;
    for (int i = 0; i < groupSizes[fields]; i++) watched[groups[fields][i]] = 1;
    return OK;
}
int dcgmUpdateAllFields(uintptr_t handle, int wait) { return OK; }

int dcgmEntitiesGetLatestValues(uintptr_t handle, entityPair *entities, unsigned int entityCount, unsigned short *fields,
                                unsigned int fieldCount, unsigned int flags, fieldValue *values) {
    if (says("crash")) abort();
    while (says("hang")) usleep(10000);
    if (says("lost")) return CONNECTION_NOT_VALID;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    for (unsigned int e = 0; e < entityCount; e++)
        for (unsigned int i = 0; i < fieldCount; i++) {
            fieldValue *v = &values[e * fieldCount + i];
            memset(v, 0, sizeof *v);
            v->entityGroupId = entities[e].entityGroupId;
            v->entityId = entities[e].entityId;
            v->fieldId = fields[i];
            v->status = watched[fields[i]] ? NO_DATA : NOT_WATCHED;
            if (!watched[fields[i]]) continue;
            int isLink = v->entityGroupId == ENTITY_LINK;
            int gpu = isLink ? (int)(v->entityId >> 24) : (int)v->entityId;
            int link = isLink ? (int)(v->entityId >> 8 & 0xffff) : -1;
            int64_t old = 0;
            char line[512], kind[8], text[256];
            int g, l, field, status;
            FILE *f = scene();
            while (fgets(line, sizeof line, f)) {
                long long millis;
                if (sscanf(line, "old %lld", &millis) == 1) old = millis;
                if (sscanf(line, "%7s %d %d %d %d %255[^\n]", kind, &g, &l, &field, &status, text) != 6) continue;
                if (g != gpu || l != link || field != v->fieldId) continue;
                v->status = status;
                v->ts = ((int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 - old) * 1000;
                if (!strcmp(kind, "int")) v->fieldType = 'i', v->value.i64 = strtoll(text, NULL, 10);
                if (!strcmp(kind, "real")) v->fieldType = 'd', v->value.dbl = strtod(text, NULL);
                if (!strcmp(kind, "text")) v->fieldType = 's', strcpy(v->value.str, text);
            }
            fclose(f);
        }
    return OK;
}
