/* Loads NATS JetStream by its C client. Arguments and output: see __init__.py. */
#include <nats/nats.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include <poll.h>

#define PENDING_MAX 4096
#define WARM_UP_S 0.5
#define SINGLES_MAX 1000000
#define FETCHED 1000

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static double cpu_s(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_utime.tv_sec + u.ru_stime.tv_sec + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void check(natsStatus s, const char *what) {
    if (s != NATS_OK) {
        fprintf(stderr, "%s: %s\n", what, natsStatus_GetText(s));
        exit(1);
    }
}

static volatile long failed = 0;

static void on_error(jsCtx *js, jsPubAckErr *error, void *closure) { failed++; }

static long publish_for(jsCtx *js, const char *subject, const char *body, int size, double seconds) {
    long count = 0;
    double end = now_s() + seconds;
    while ((count & 63) || now_s() < end) {
        check(js_PublishAsync(js, subject, body, size, NULL), "publish");
        count++;
    }
    check(js_PublishAsyncComplete(js, NULL), "acknowledgements");
    return count;
}

static void pipelined(jsCtx *js, const char *subject, const char *body, int size, double seconds) {
    long before = publish_for(js, subject, body, size, WARM_UP_S);
    double began = now_s(), cpu = cpu_s();
    long count = publish_for(js, subject, body, size, seconds);
    printf("{\"count\": %ld, \"seconds\": %.6f, \"cpu_s\": %.4f, \"sent\": %ld, \"failed\": %ld}\n", count,
           now_s() - began, cpu_s() - cpu, before + count, failed);
}

static int ascending(const void *a, const void *b) {
    double d = *(const double *)a - *(const double *)b;
    return d < 0 ? -1 : d > 0;
}

static void single(jsCtx *js, const char *subject, const char *body, int size, double seconds) {
    double *took = malloc(SINGLES_MAX * sizeof(double));
    for (int i = 0; i < 100; i++)
        check(js_Publish(NULL, js, subject, body, size, NULL, NULL), "publish");
    long count = 0;
    double began = now_s(), cpu = cpu_s();
    while (count < SINGLES_MAX && now_s() < began + seconds) {
        double at = now_s();
        check(js_Publish(NULL, js, subject, body, size, NULL, NULL), "publish");
        took[count++] = now_s() - at;
    }
    cpu = cpu_s() - cpu;
    qsort(took, count, sizeof(double), ascending);
    printf("{\"count\": %ld, \"median_ms\": %.4f, \"p99_ms\": %.4f, \"cpu_s\": %.4f, \"sent\": %ld}\n", count,
           1e3 * took[count / 2], 1e3 * took[count * 99 / 100], cpu, count + 100);
}

static volatile long got = 0;
static volatile double first_s = 0, last_s = 0;
static long wanted;

static void on_message(natsConnection *nc, natsSubscription *sub, natsMsg *msg, void *closure) {
    if (got == 0) first_s = now_s();
    if (++got == wanted) last_s = now_s();
    natsMsg_Destroy(msg);
}

static void read_all(jsCtx *js, const char *subject, double seconds, long count) {
    jsSubOptions options;
    jsSubOptions_Init(&options);
    options.Ordered = true;
    natsSubscription *sub = NULL;
    wanted = count;
    double end = now_s() + seconds + 5, cpu = cpu_s();
    check(js_Subscribe(&sub, js, subject, on_message, NULL, NULL, &options, NULL), "subscribe");
    while (last_s == 0 && now_s() < end) usleep(1000);
    double until = last_s ? last_s : now_s();
    printf("{\"count\": %ld, \"seconds\": %.6f, \"cpu_s\": %.4f}\n", got, until - first_s, cpu_s() - cpu);
    natsSubscription_Unsubscribe(sub);
}

/* Batches of a pull consumer; each message is acknowledged, or none is. */
static void fetch(jsCtx *js, const char *subject, double seconds, long count, bool acknowledge) {
    jsConsumerConfig config;
    jsConsumerConfig_Init(&config);
    config.Durable = acknowledge ? "fetch-ack" : "fetch";
    config.AckPolicy = acknowledge ? js_AckExplicit : js_AckNone;
    config.MaxAckPending = acknowledge ? 10 * FETCHED : 0;
    check(js_AddConsumer(NULL, js, subject, &config, NULL, NULL), "consumer");
    jsSubOptions options;
    jsSubOptions_Init(&options);
    options.Stream = subject;
    options.Consumer = config.Durable;
    natsSubscription *sub = NULL;
    check(js_PullSubscribe(&sub, js, subject, NULL, NULL, &options, NULL), "subscribe");
    double end = now_s() + seconds + 5, cpu = cpu_s();
    while (got < count && now_s() < end) {
        natsMsgList list;
        natsStatus s = natsSubscription_Fetch(&list, sub, FETCHED, 1000, NULL);
        if (s == NATS_TIMEOUT) continue;
        check(s, "fetch");
        if (got == 0) first_s = now_s();
        got += list.Count;
        for (int i = 0; acknowledge && i < list.Count; i++) check(natsMsg_Ack(list.Msgs[i], NULL), "acknowledge");
        natsMsgList_Destroy(&list);
    }
    printf("{\"count\": %ld, \"seconds\": %.6f, \"cpu_s\": %.4f}\n", got, now_s() - first_s, cpu_s() - cpu);
}

static void gaps(jsCtx *js, const char *subject, const char *body, int size) {
    struct pollfd in = {0, POLLIN, 0};
    double last = now_s(), told = last, longest = 0;
    jsPubOptions options;
    jsPubOptions_Init(&options);
    options.MaxWait = 1000;
    while (poll(&in, 1, 0) == 0) {
        if (js_Publish(NULL, js, subject, body, size, &options, NULL) != NATS_OK) {
            usleep(5000);
            continue;
        }
        double at = now_s();
        if (at - last > longest) longest = at - last;
        last = at;
        if (at - told > 0.05) {
            printf("%.6f %.6f\n", at, longest);
            fflush(stdout);
            told = at;
            longest = 0;
        }
    }
}

int main(int argc, char **argv) {
    if (argc != 7) return 2;
    const char *subject = argv[2], *work = argv[3];
    int size = atoi(argv[4]);
    double seconds = atof(argv[5]);
    char *body = calloc(1, size + 1);
    const char *servers[16];
    int many = 0;
    for (char *one = strtok(argv[1], ","); one && many < 16; one = strtok(NULL, ",")) servers[many++] = one;
    natsOptions *options = NULL;
    natsConnection *nc = NULL;
    jsCtx *js = NULL;
    jsOptions js_options;
    check(natsOptions_Create(&options), "options");
    check(natsOptions_SetServers(options, servers, many), "servers");
    natsOptions_SetMaxReconnect(options, -1);
    natsOptions_SetReconnectWait(options, 20);
    natsOptions_SetMaxPendingMsgs(options, 10000000);
    check(natsConnection_Connect(&nc, options), "connect");
    jsOptions_Init(&js_options);
    js_options.PublishAsync.MaxPending = PENDING_MAX;
    js_options.PublishAsync.ErrHandler = on_error;
    js_options.PublishAsync.StallWait = 30000;
    check(natsConnection_JetStream(&js, nc, &js_options), "jetstream");
    if (!strcmp(work, "pipelined")) pipelined(js, subject, body, size, seconds);
    else if (!strcmp(work, "single")) single(js, subject, body, size, seconds);
    else if (!strcmp(work, "read")) read_all(js, subject, seconds, atol(argv[6]));
    else if (!strcmp(work, "fetch")) fetch(js, subject, seconds, atol(argv[6]), false);
    else if (!strcmp(work, "fetch-ack")) fetch(js, subject, seconds, atol(argv[6]), true);
    else if (!strcmp(work, "gaps")) gaps(js, subject, body, size);
    else return 2;
    fflush(stdout);
    _exit(0);
}
