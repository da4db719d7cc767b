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
  for (const sent of [
    made('news', 'normal'),
    made('lines', 'ordered', { messageGroup: 'g' }),
    made('later', 'delayed', { delay: 2000 }),
  ]) {
    say('sent', (await producer.send(sent)).messageId);
  }
  const recalled = await producer.send(made('later', 'recalled', { delay: 60000 }));
  say('recalled', (await producer.recallMessage('later', recalled.recallHandle)).messageId);
  try {
    await producer.send(made('orders', 'no transaction'));
  } catch (refused) {
    say('refused', refused.message);
  }
  await producer.shutdown();
}

const checker = {
  async check(message) {
    const text = message.body.toString();
    say('checked', text);
    return text === 'left, committed' ? TransactionResolution.COMMIT : TransactionResolution.ROLLBACK;
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
  for (const topic of ['news', 'lines', 'later']) {
    await consumer.subscribe(topic, FilterExpression.SUB_ALL);
  }
  const end = Date.now() + 60000;
  while (expected > 0 && Date.now() < end) {
    for (const message of await consumer.receive(16, 15000)) {
      say('received', message.body.toString(), message.messageId, message.properties.get('color'));
      await consumer.changeInvisibleDuration(message, 20000);
      await consumer.ack(message);
      expected--;
    }
  }
  await consumer.shutdown();
}

async function push() {
  let finish;
  const done = new Promise(resolve => { finish = resolve; });
  const messageListener = {
    async consume(message) {
      say('pushed', message.body.toString(), message.deliveryAttempt);
      if (message.deliveryAttempt === 1) {
        return ConsumeResult.FAILURE;
      }
      finish();
      return ConsumeResult.SUCCESS;
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
  await receive(5);
  await push();
  await producer.shutdown();
}

main().then(() => process.exit(0), error => {
  console.error(error);
  process.exit(1);
});
