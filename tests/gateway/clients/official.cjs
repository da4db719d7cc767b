// RocketMQ's official Node.js client, unchanged: what it sends and receives, one line each. Run with the address of a gateway.
//
// Each client starts with one topic: with several it waits for ever if the settings come before the last route.

const { setTimeout: sleep } = require('node:timers/promises');
const { ConsumeResult, FilterExpression, Producer, PushConsumer, SimpleConsumer } = require('rocketmq-client-nodejs');
const { FilterType, TransactionResolution } = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const [endpoints, accessKey, accessSecret] = process.argv.slice(2);
const configuration = { endpoints, namespace: '', sessionCredentials: { accessKey, accessSecret } };

function say(...words) {
  console.log(words.join('\t'));
}

function made(topic, text, given = {}) {
  const properties = new Map([['color', 'blue']]);
  return { topic, body: Buffer.from(text), tag: 'red', keys: ['key'], properties, ...given };
}

async function send() {
  const producer = new Producer({ ...configuration, topics: ['news'] });
  await producer.startup();
  const due = Date.now() + 2000;
  say('due', due);
  for (const sent of [
    made('news', 'normal'),
    made('news', 'failing', { tag: 'green' }),
    made('lines', 'ordered', { messageGroup: 'g' }),
    made('later', 'delayed', { deliveryTimestamp: new Date(due) }),
  ]) {
    say('sent', (await producer.send(sent)).messageId);
  }
  const recalled = await producer.send(made('later', 'recalled', { deliveryTimestamp: new Date(due) }));
  say('recalled', (await producer.recallMessage('later', recalled.recallHandle)).messageId);
  try {
    await producer.send(made('orders', 'no transaction'));
  } catch (refused) {
    say('refused', refused.message);
  }
  await producer.shutdown();
}

const asked = new Set();
const checker = {
  async check(message) {
    const text = message.body.toString();
    say('checked', text);
    if (text === 'left, rolled back') {
      return TransactionResolution.ROLLBACK;
    }
    const again = asked.has(text);
    asked.add(text);
    return again ? TransactionResolution.COMMIT : TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED;
  },
};

async function transact() {
  const producer = new Producer({ ...configuration, topics: ['orders'], checker });
  await producer.startup();
  for (const text of ['committed', 'rolled back', 'left, committed', 'left, rolled back']) {
    const transaction = producer.beginTransaction();
    say('half', (await producer.send(made('orders', text), transaction)).messageId);
    if (text === 'committed') {
      await transaction.commit();
    } else if (text === 'rolled back') {
      await transaction.rollback();
    }
  }
  return producer;
}

async function receive(expected) {
  const blue = new FilterExpression("color = 'blue'", FilterType.SQL);
  const subscriptions = new Map([['orders', blue]]);
  const consumer = new SimpleConsumer({ ...configuration, consumerGroup: 'readers', subscriptions, awaitDuration: 1000 });
  await consumer.startup();
  await consumer.subscribe('news', new FilterExpression('red', FilterType.TAG));
  for (const topic of ['lines', 'later']) {
    await consumer.subscribe(topic, FilterExpression.SUB_ALL);
  }
  const end = Date.now() + 60000;
  while (expected > 0 && Date.now() < end) {
    for (const message of await consumer.receive(16, 15000)) {
      const text = message.body.toString();
      say('received', text, message.messageId, message.properties.get('color'), message.deliveryAttempt, Date.now());
      const again = text === 'normal' && message.deliveryAttempt === 1;
      await consumer.changeInvisibleDuration(message, again ? 1000 : 20000);
      if (!again) {
        await consumer.ack(message);
      }
      expected--;
    }
  }
  await consumer.shutdown();
}

async function push() {
  let finish;
  let left = 2;
  const done = new Promise(resolve => { finish = resolve; });
  const messageListener = {
    async consume(message) {
      say('pushed', message.body.toString(), message.deliveryAttempt);
      if (message.deliveryAttempt === 1) {
        return ConsumeResult.FAILURE;
      }
      left--;
      if (left === 0) {
        finish();
      }
      return message.body.toString() === 'failing' ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
    },
  };
  const subscriptions = new Map([['news', '*']]);
  const consumer = new PushConsumer({ ...configuration, consumerGroup: 'pushers', subscriptions, messageListener });
  await consumer.startup();
  await Promise.race([done, sleep(40000)]);
  await sleep(500); // it acknowledges; to shut it down would wait for the end of a long poll
}

async function main() {
  await send();
  const producer = await transact();
  await receive(6);
  await push();
  await producer.shutdown();
}

main().then(() => process.exit(0), error => {
  console.error(error);
  process.exit(1);
});
