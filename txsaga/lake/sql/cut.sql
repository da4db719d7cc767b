-- name: heads
SELECT t.name, array_agg(q.head ORDER BY q.idx) FROM txsaga.topic t JOIN txsaga.queue q ON q.topic = t.id
 WHERE strpos(t.name, '~') = 0 GROUP BY t.name ORDER BY t.name;
