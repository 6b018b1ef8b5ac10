// Every word of the page, and its products. A shop in another language is this file; style.css is the brand.
// The API has words of its own: what a customer reads after a decline (functions/orders_api/declines.py).

export const LANGUAGE = "en"; // Numbers, dates and Stripe's card form are in it, too.
export const SHOP = "Onecharge";
export const SLOGAN = "Made for desks, sent by post";
export const INTRODUCTION = "Each order is charged once, however often you click.";

/** What is sold, by sku. A sku of the price list that is not named here is shown by itself, as a parcel. */
const PRODUCTS = {
  mug: { name: "Mug", about: "Stoneware, 330 ml, made for a long afternoon.", picture: "pictures/mug.svg" },
  postcard: { name: "Postcard", about: "The lake at sunrise, with room for nine lines.", picture: "pictures/postcard.svg" },
  poster: { name: "Poster", about: "The same mountains by night, 50 × 70 cm.", picture: "pictures/poster.svg" },
};

export function product(sku) {
  return Object.hasOwn(PRODUCTS, sku) ? PRODUCTS[sku] : { name: sku, about: "", picture: "pictures/parcel.svg" };
}

export const TEST_CARDS = `Test mode: no money moves. Pay with one of these cards, any future date and any CVC.
4242 4242 4242 4242 pays
4000 0000 0000 0002 is declined
4000 0000 0000 3220 asks for 3-D Secure`;

// ---- the screens

export const CONSOLE = "Console"; // Of a local run.
export const SIGN_IN = "Sign in to order";
export const signOut = (customer) => (customer.length > 20 ? "Sign out" : `Sign out ${customer}`); // A user pool's ids are no names.
export const BASKET = "Your basket";
export const BACK = "Back to the shop";
export const CHOOSE = "Choose something.";
export const total = (amount) => `Total ${amount}`;
export const line = (quantity, name) => `${quantity} × ${name}`;
export const pay = (amount) => `Pay ${amount}`;
export const ORDERS = "Your orders";
export const NO_ORDERS = "You have not ordered anything yet.";
export const OLDER_ORDERS = "Older orders";
export const order = (amount) => `Your order of ${amount}`;
export const BOUGHT = "What was ordered";
export const refunded = (amount) => `${amount} has been refunded.`;
export const placed = (date, orderId) => `Ordered ${date}\nOrder number ${orderId}`;
export const CANCEL = "Cancel this order";
export const CONFIRM = "Confirm with your bank";
export const BOOKING = "Your bank has confirmed this payment. We are completing your order.";

/** An order's status, short and in a sentence to its customer. */
export const STATUS = {
  PENDING: ["in progress", "We have your order, and are charging your card, once. You can wait here, or look later under “Your orders”."],
  PAID: ["paid", "Paid. Thank you!"],
  PAYMENT_DECLINED: ["declined", "This order is not paid. Nothing was charged."],
  REQUIRES_ACTION: ["to be confirmed", "Your bank asks you to confirm this payment. Nothing is charged before you do."],
  CANCELING: ["being canceled", "The order is being canceled. If your card was charged a moment before, the order stays paid."],
  CANCELED: ["canceled", "The order is canceled. Nothing was charged."],
};

/** Why an order is CANCELED, unless its customer asked for it. */
export const CANCEL_REASON = {
  expired: "The payment was not confirmed in time, so the order is canceled. Nothing was charged.",
  not_chargeable: "This amount cannot be charged, so the order is canceled. Nothing was charged.",
};

// ---- an order that was sent before

export const SEND_AGAIN = "Send it again";
export const lost = (amount) => `Your ${amount ? `order of ${amount}` : "card"} was sent, but no answer came back. ${SEND_AGAIN}: you are charged once, whether or not it arrived.`;
export const ORDERED_BEFORE = "You have ordered exactly this before.";
export const SHOW_ORDER = "Show this order";
export const SAME_AGAIN = "Order the same once more";
export const PRICE_CHANGED = "The price has changed since you saw it. Nothing was ordered: this is what it costs now.";
export const TRY_ARRIVED = "Your order arrived after all, with the card of an earlier try. Look at your orders before you order again.";
export const BASKET_CHANGED = "The basket has changed since you saw it: nothing was ordered.";
export const OTHER_TAB = "Another tab was faster: nothing was sent from here. Reload the page.";
export const CANNOT_REMEMBER = "This browser cannot remember your order: let it store this site's data. Nothing was sent.";

// ---- what goes wrong

export const NO_CONFIGURATION = "This shop is not set up yet: it has no config.json.";
export const SIGN_IN_EXPIRED = "Your sign-in has expired. Sign in again: your order is kept.";
export const SIGN_IN_FAILED = "You are not signed in: the sign-in did not end with an access token. Try it again.";
export const NO_SUCH_ORDER = "There is no such order of yours.";
export const UNREACHABLE = "The shop cannot be reached.";
export const BUSY = "The shop is busy.";
export const refusedWith = (status) => `The shop answered ${status}. Its address in config.json may be wrong.`;
export const tryAgain = (what) => `${what} Nothing is lost: try again.`;
export const tryingAgain = (what) => `${what} Your order is safe. Trying again …`;
export const noStripe = (url) => `Stripe's card form could not be loaded. Allow ${url}, and try again.`;
