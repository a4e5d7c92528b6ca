"""Threads of exported C: a pool in the context, whose threads share the parts of a kernel.

In: how many. Out: text for POSIX threads.
Sits under `write_c`, which prints it only where kernels are shared.
Invariant: a part runs once, and all of them have run when `pool_run` returns.
"""

from __future__ import annotations


def pool_text(threads: int) -> str:
    """Threads that share the parts of a kernel; the caller's is one of them."""
    return f"""/* ---------------------------------------------------------------- threads */
enum {{ THREADS = {threads} }};
typedef void (*part_function)(const void *call, int64_t begin, int64_t end);

struct pool {{
  pthread_t threads[THREADS];
  int count, busy, is_ending;
  unsigned long round;
  pthread_mutex_t lock;
  pthread_cond_t work, done;
  part_function part;
  const void *call;
  int64_t next, total, step;
}};

/* takes parts until there are none; the lock is held before and after */
static void pool_take(struct pool *pool) {{
  while (pool->next < pool->total) {{
    const int64_t begin = pool->next;
    const int64_t end = begin + pool->step < pool->total ? begin + pool->step : pool->total;
    pool->next = end;
    pthread_mutex_unlock(&pool->lock);
    pool->part(pool->call, begin, end);
    pthread_mutex_lock(&pool->lock);
  }}
}}

static void *pool_work(void *given) {{
  struct pool *pool = (struct pool *)given;
  unsigned long seen = 0;
  pthread_mutex_lock(&pool->lock);
  for (;;) {{
    while (pool->round == seen && !pool->is_ending) pthread_cond_wait(&pool->work, &pool->lock);
    if (pool->is_ending) break;
    seen = pool->round;
    pool->busy++;
    pool_take(pool);
    if (--pool->busy == 0) pthread_cond_signal(&pool->done);
  }}
  pthread_mutex_unlock(&pool->lock);
  return NULL;
}}

static void pool_start(struct pool *pool) {{
  memset(pool, 0, sizeof *pool);
  pthread_mutex_init(&pool->lock, NULL);
  pthread_cond_init(&pool->work, NULL);
  pthread_cond_init(&pool->done, NULL);
  /* where threads cannot be had the caller does it all */
  while (pool->count < THREADS - 1 &&
         pthread_create(&pool->threads[pool->count], NULL, pool_work, pool) == 0)
    pool->count++;
}}

static void pool_stop(struct pool *pool) {{
  pthread_mutex_lock(&pool->lock);
  pool->is_ending = 1;
  pthread_cond_broadcast(&pool->work);
  pthread_mutex_unlock(&pool->lock);
  for (int i = 0; i < pool->count; i++) pthread_join(pool->threads[i], NULL);
  pthread_cond_destroy(&pool->work);
  pthread_cond_destroy(&pool->done);
  pthread_mutex_destroy(&pool->lock);
}}

static void pool_run(struct pool *pool, part_function part, const void *call, int64_t total) {{
  if (total == 1 || pool->count == 0) {{ part(call, 0, total); return; }}
  pthread_mutex_lock(&pool->lock);
  pool->part = part;
  pool->call = call;
  pool->next = 0;
  pool->total = total;
  pool->step = total / (4 * THREADS) + 1;
  pool->round++;
  pthread_cond_broadcast(&pool->work);
  pool_take(pool);
  while (pool->busy) pthread_cond_wait(&pool->done, &pool->lock);
  pthread_mutex_unlock(&pool->lock);
}}"""
